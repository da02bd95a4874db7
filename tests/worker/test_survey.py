"""A survey describes the machine and models' folders without loading any."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from builders.cases import for_each
from builders.quantized_model import Form, mixed_model, mxfp4_model, quantization_config
from builders.tiny_configs import FAMILIES, change_config
from builders.tiny_model import tiny_model

from penstock.protocol.survey import ModelSurvey
from penstock.worker import survey as worker_survey
from penstock.worker.description.config import read_config
from penstock.worker.description.products import products
from penstock.worker.survey import survey


def surveyed(folder: Path) -> ModelSurvey:
    return survey([str(folder)], with_torch=False).models[0]


@for_each("family", FAMILIES)
def test_every_family_has_its_figures(family, tmp_path):
    found = surveyed(tiny_model(tmp_path, family))
    assert (found.refusal, found.family, found.dtype, found.context, found.cut) == (None, family, "float32", 1024, "")
    assert found.stored_bytes == (tmp_path / "model.safetensors").stat().st_size
    config = FAMILIES[family]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    of_layer = 2 * config["num_key_value_heads"] * head_dim
    if "kv_lora_rank" in config:
        of_layer = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    described = read_config(tmp_path)
    if not any(described.states) and len(set(described.heads)) == 1:
        num_kept = sum(min(window or found.context, found.context) for window in described.windows)
        assert found.kv_bytes == num_kept * of_layer * 4
    chunked = surveyed(change_config(tmp_path, dual_chunk_attention_config={"chunk_size": 500, "local_size": 100}))
    assert chunked.context == 400 and chunked.cut.startswith("of 1,024: beyond that, dual_chunk_attention_config")


def test_weights_that_are_cut_count_all_together_and_none_are_refused(tmp_path):
    whole = surveyed(tiny_model(tmp_path, "qwen3"))
    for rank in range(2):
        (tmp_path / f"rank-{rank}-of-2").mkdir()
        shutil.copyfile(tmp_path / "model.safetensors", tmp_path / f"rank-{rank}-of-2" / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    found = surveyed(tmp_path)
    assert (whole.cut_for, found.cut_for, found.refusal) == (0, 2, None)
    assert found.stored_bytes == 2 * whole.stored_bytes
    shutil.rmtree(tmp_path / "rank-0-of-2")
    shutil.rmtree(tmp_path / "rank-1-of-2")
    assert surveyed(tmp_path).refusal == "it holds no *.safetensors files."


@for_each("flags, widening", [("avx2", 2), ("avx512bw avx512vl avx512dq", 1), ("avx2 fma f16c", 1)])
def test_bfloat16_and_a_table_that_is_the_head_take_twice_the_memory_where_nothing_multiplies_them(
    flags, widening, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker_survey, "_cpu_flags", lambda: set(flags.split()))
    found = surveyed(tiny_model(tmp_path / "llama", "llama", dtype="bfloat16"))
    assert found.cpu_bytes == widening * found.stored_bytes
    monkeypatch.setattr(worker_survey, "_cpu_flags", set)
    found = surveyed(tiny_model(tmp_path / "qwen3", "qwen3"))
    assert found.cpu_bytes - found.stored_bytes == 307 * 64 * 4


SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}


@for_each("form", ["mxfp4", "gptq"])
def test_quantized_matrices_count_as_floats_without_native_kernels(tmp_path, monkeypatch, form):
    if form == "mxfp4":
        folder = mxfp4_model(tmp_path)
    else:
        config = quantization_config(Form("gptq"))
        folder, _ = mixed_model(tmp_path, lambda module: Form("gptq"), config, "mixtral", **SIZES)
    matrices = sum(product.num_weights for product in products(read_config(folder)))
    monkeypatch.setattr(worker_survey, "_cpu_flags", lambda: {"avx2", "fma", "f16c"})
    found = surveyed(folder)
    assert found.cpu_bytes == found.stored_bytes < 4 * matrices
    monkeypatch.setattr(worker_survey, "_cpu_flags", set)
    assert surveyed(folder).cpu_bytes == 4 * matrices


@for_each("config, sentence", [
    ({"architectures": ["HeliumForCausalLM"]}, "config.json names the architecture HeliumForCausalLM"),
    ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is not as awq writes it"),
    ({"hidden_size": "many"}, "hidden_size must be a positive whole number"),
    ({"rope_parameters": "none"}, "config.json"),
])  # fmt: skip
def test_a_model_that_would_not_load_is_refused_with_the_reason(config, sentence, tmp_path):
    path = tiny_model(tmp_path, "llama") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    found = surveyed(tmp_path)
    assert sentence in (found.refusal or "")
    assert found.stored_bytes == 0


def test_what_is_wrong_with_one_folder_is_said_of_that_one(tmp_path):
    """Such as links that lead nowhere, which is what a cache has whose contents somebody removed."""
    good = tiny_model(tmp_path / "good", "llama")
    targets = {"broken": "/nowhere", "loop": "model.safetensors"}
    for name, target in targets.items():
        weights = tiny_model(tmp_path / name, "llama") / "model.safetensors"
        weights.unlink()
        weights.symlink_to(target)
    found = survey([*(str(tmp_path / name) for name in targets), str(good)], with_torch=False).models
    assert [each.refusal for each in found] == [
        f"model.safetensors leads to {target}, which is not there. Download it again." for target in targets.values()
    ] + [None]


def test_torch_is_imported_only_where_it_was_asked_for():
    code = "import sys\nfrom penstock.worker.survey import main\nmain(sys.argv[1:])\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False", done


def test_a_torch_that_cannot_be_imported_is_what_was_found(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: no such file')")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom penstock.worker.survey import main\nmain(['--torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["torch"]["error"] == "ImportError: libcudart.so.12: no such file", done
