"""A survey describes the machine and models' folders without loading any; what is wrong with a model's files is said as
what it is, by a survey and by a load, before anything of them is read.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.quantized_model import Form, mixed_model, mxfp4_model, quantization_config
from builders.tiny_configs import FAMILIES, change_config
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError, ModelNotFoundError, OutOfMemoryError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.survey import ModelSurvey
from penstock.worker import survey as worker_survey
from penstock.worker.description.config import read_config
from penstock.worker.description.products import products
from penstock.worker.start.demand import Demand
from penstock.worker.start.load import load_model
from penstock.worker.start.memory.weights_fit import check_weights
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "False", done


def test_a_torch_that_cannot_be_imported_is_what_was_found(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: no such file')")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom penstock.worker.survey import main\nmain(['--torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout)["torch"]["error"] == "ImportError: libcudart.so.12: no such file", done


# --- files that are damaged, missing or too large ---------------------------------------------------------------------


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n"


def refused(folder, sentence, kind=ConfigError):
    """By a load, and by the survey that `penstock models` asks."""
    with pytest.raises(kind, match=sentence):
        load_model(folder)
    (found,) = survey([str(folder)], with_torch=False).models
    assert found.refusal is not None
    return found.refusal


def test_a_pointer_of_git_lfs_in_place_of_a_file_is_named(tmp_path):
    tiny_model(tmp_path / "whole", "llama")
    (tmp_path / "whole" / "model.safetensors").write_text(POINTER)
    folder = tiny_model(tmp_path / "shards", "llama", shards=3)
    (folder / "model-00003-of-00003.safetensors").write_text(POINTER)
    for each in (tmp_path / "whole", folder):
        assert "Git-LFS pointer" in refused(each, r"safetensors is a Git-LFS pointer.* `git lfs pull`")
    for name in ("model.safetensors.index.json", "config.json"):
        (folder / name).write_text(POINTER)
        refused(folder, rf"{name} is a Git-LFS pointer")


@for_each("shards", [1, 3])
@for_each("kept", [0, 3, 8, 500, 0.5, 0.999, -1])
def test_a_truncated_file_is_named_with_its_length(tmp_path, shards, kept):
    tiny_model(tmp_path, "qwen3", shards=shards)
    path = sorted(tmp_path.glob("*.safetensors"))[shards // 2]
    content = path.read_bytes()
    length = int(kept * len(content)) if isinstance(kept, float) else kept
    path.write_bytes(content[:length])
    refused(tmp_path, rf"{path.name} is damaged: .*{len(content[:length]):,} .*Download it again")


def with_header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + b"0000"


def test_bytes_behind_the_last_tensor_and_pages_of_a_server_are_damage_too(tmp_path):
    path = tiny_model(tmp_path, "qwen3") / "model.safetensors"
    for content, sentence in (
        (path.read_bytes() + b"0", "model.safetensors is damaged"),
        (b"<!doctype html><html>" * 40, "bytes are no safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no safetensors header"),
        (with_header('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'), "gives a bytes 0 to 4, which"),
        (with_header('{"a": {"dtype": "U8", "shape": [3], "data_offsets": [1, 4]}}'), "gives a bytes 1 to 4, which"),
        (with_header('{"a": {"dtype": "F6", "shape": [3], "data_offsets": [0, -4]}}'), "is no safetensors header"),
        (with_header('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"), "is no safetensors header"),
        (
            with_header('{"a": {"dtype": "U8", "shape": [%s 4], "data_offsets": [0, 4]}}' % ("1, " * 70)),
            "is no safeten",
        ),
        (
            with_header(
                '{"a": {"dtype": "F6", "shape": [1], "data_offsets": [0, 8]}, "b": '
                '{"dtype": "F6", "shape": [1], "data_offsets": [8, 4]}}'
            ),
            "gives b bytes 8 to 4, which",
        ),
    ):
        path.write_bytes(content)
        refused(tmp_path, sentence)


def test_files_that_the_index_names_and_are_missing_are_counted(tmp_path):
    tiny_model(tmp_path, "llama", shards=4)
    for number in (2, 3):
        (tmp_path / f"model-0000{number}-of-00004.safetensors").unlink()
    sentence = r"model-00002-of-00004\.safetensors is listed in the index but missing \(2 files are\)"
    refused(tmp_path, sentence, ModelNotFoundError)


@for_each("load_format", ["auto", "dummy"])
@for_each("shards", [1, 3])
def test_room_is_asked_for_before_anything_is_read(tmp_path, load_format, shards):
    tiny_model(tmp_path, "qwen3", shards=shards)
    stored = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"")  # nobody looks

    def no_room(demand: Demand) -> bool:
        assert 0.9 * stored < demand.weight_bytes <= stored
        raise OutOfMemoryError(f"{demand.weight_bytes} in {demand.kinds}")

    with pytest.raises(OutOfMemoryError, match="in fp32"):
        load_model(tmp_path, load_format=load_format, check_room=no_room)


@for_each("quantization, share", [(None, 1), ("int8", 4), ("int4", 8)])
@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_what_weights_will_take_is_reckoned_from_the_config(tmp_path, family, quantization, share):
    """Never more than they take, and little less: norms, biases, scales and padding are left out."""
    folder = tiny_model(tmp_path, family, tie_word_embeddings=True)
    found: list[int] = []
    load_model(folder, quantization=quantization, check_room=lambda demand: bool(found.append(demand.weight_bytes)))
    stored = (folder / "model.safetensors").stat().st_size
    assert 0.8 * stored / share < found[0] <= stored / share


def test_a_model_larger_than_memory_is_refused_with_what_would_fit():
    config = EngineConfig.from_options("a/model")
    gib = 1 << 30
    check_weights(10 * gib, 10 * gib, "bf16", "this CPU", config)
    for free, way_out in ((9, "'int8'"), (5, "'int4'"), (4, "'int4'")):
        sentence = rf"a/model need 10 GiB in bf16, and {free} GiB .*Use quantization={way_out}, a smaller"
        with pytest.raises(OutOfMemoryError, match=sentence):
            check_weights(10 * gib, free * gib, "bf16", "this CPU", config)
    with pytest.raises(OutOfMemoryError, match="Use a smaller model, or free memory"):
        check_weights(10 * gib, 2 * gib, "bf16", "this CPU", config)
