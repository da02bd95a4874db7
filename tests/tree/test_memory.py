"""A model takes little of the machine's memory beside its weights, never more than there is, and a mixture larger
than memory answers as it does elsewhere.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from bench.accuracy.conversion import largest_tensor, loaded, peak_of
from bench.models import SHAPES, write_checkpoint, write_config
from builders.tiny_model import tiny_model
from builders.watching import tree_processes, wait_until

from penstock import LLM, OutOfMemoryError, SamplingParams
from penstock.frontend.models.conversion import convert_model

# --- more than there is -----------------------------------------------------------------------------------------------


@pytest.fixture
def huge_model(tmp_path):
    """Petabytes by its config, in files that take no room on the disk; two ranks of a machine share its memory."""
    folder = tiny_model(tmp_path / "huge", "llama", shards=2)
    path = folder / "config.json"
    sizes = {"hidden_size": 1 << 17, "intermediate_size": 1 << 20, "num_hidden_layers": 2000}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    return folder


@pytest.mark.parametrize("options", [{}, pytest.param({"tensor_parallel_size": 2}, marks=pytest.mark.long)], ids=str)
def test_a_model_larger_than_the_machine_is_refused_with_what_it_needs_and_what_is_free(huge_model, options):
    with pytest.raises(OutOfMemoryError, match=r"The weights of .* need [\d.,]+ TiB in .*, and [\d.]+ GiB are free on"):
        LLM(huge_model, quiet=True, **options)


# --- larger than a limit ----------------------------------------------------------------------------------------------

MIXTURE = {
    "hidden_size": 1024, "moe_intermediate_size": 384, "num_experts": 64, "num_experts_per_tok": 4,
    "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
SCRIPT = """
import json, os, sys
from pathlib import Path
folder, group, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if group:
    Path(group).write_text(str(os.getpid()))
from penstock import LLM, SamplingParams
with LLM(folder, max_model_len=256, max_num_batched_tokens=128, **options) as llm:
    params = [SamplingParams(temperature=1, seed=seed, max_tokens=12, ignore_eos=True) for seed in range(2)]
    answers = llm.generate(prompts=["Once upon a time", "The other day"], sampling_params=params)
    print(json.dumps([list(answer.outputs.token_ids) for answer in answers]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tiny_model(tmp_path_factory.mktemp("model"), "qwen3_moe", shards=6, **MIXTURE)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def memory_limit(nbytes: int) -> Iterator[Path]:
    """A control group, of either version: the file that takes ids of processes, all of which end before it does.

    Skips where none can be made.
    """
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"penstock-{uuid4().hex[:12]}")
        with suppress(OSError):
            group.mkdir()
            if (group / limit).exists():  # else it is of the second version, without this controller
                (group / limit).write_text(str(nbytes))
                break
            group.rmdir()
    else:
        pytest.skip("no control group with a limit of memory can be made here")
    try:
        yield group / "cgroup.procs"
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "its processes have ended")
        group.rmdir()


def ran(model: Path, cache: Path, group: Path | str = "", **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, str(model), str(group), json.dumps(options)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_mixture_larger_than_a_limit_answers_with_the_tokens_of_a_machine_that_holds_it(model, tmp_path, ranks):
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    with memory_limit(size * 2 // 3) as group:
        first = ran(model, tmp_path, group, tensor_parallel_size=ranks)
        again = ran(model, tmp_path, group, tensor_parallel_size=ranks)
    wanted = ran(model, tmp_path, quiet=True)
    for limited in (first, again):
        assert limited.returncode == 0, limited.stderr
        assert json.loads(limited.stdout) == json.loads(wanted.stdout)
        assert "The model is larger than memory: its weights are mapped from the disk" in limited.stderr
        assert "stay in memory" in limited.stderr


# --- little beside the weights ----------------------------------------------------------------------------------------

BASE = 100_000_000  # bytes that Python may take
# Many tensors of a moderate size: whoever keeps the original's 0.95 GB, or both forms of the weights, is found out.
MANY_LAYERS = {**SHAPES["0.6b"], "vocab_size": 32768}


@pytest.mark.long
def test_converting_and_loading_stay_within_their_bound(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(SHAPES, "many layers", MANY_LAYERS)
    source, target = tmp_path / "original", tmp_path / "converted"
    write_checkpoint(source, "many layers")
    largest = largest_tensor(json.loads((source / "config.json").read_text()))
    with peak_of("penstock.worker.convert") as peak:
        made = convert_model(source, target, quantization="int8")
    taken = {"convert": (peak.nbytes, made.after + largest + BASE)}
    for word in ("load", "load again"):
        peak, weights, _ = loaded(target, largest)
        taken[word] = (peak.nbytes, weights + BASE)
    print({word: f"{most / 1e9:.2f} of {bound / 1e9:.2f} GB" for word, (most, bound) in taken.items()})
    assert {word for word, (most, bound) in taken.items() if not 0 < most <= bound} == set(), taken


LENGTH, TOP = 4096, 20
MOST_ADDED = 300 * 10**6
ONE_LAYER = {**SHAPES["0.6b"], "num_hidden_layers": 1, "max_position_embeddings": 8192}


@pytest.mark.long
@pytest.mark.parametrize("variant", [None, "none"], ids=["native", "torch"])
def test_the_top_20_of_4096_positions_over_152k_tokens_add_at_most_300_mb(tmp_path, monkeypatch, variant):
    if variant is not None:
        monkeypatch.setenv("PENSTOCK_CPU_VARIANT", variant)
    write_config(tmp_path, ONE_LAYER)
    options = {"load_format": "dummy", "dtype": "bfloat16", "max_model_len": LENGTH + 64, "quiet": True}
    # As many blocks as one prompt needs, so that each is touched by the first.
    with LLM(tmp_path, enable_prefix_caching=False, num_gpu_blocks_override=LENGTH // 32 + 2, **options) as llm:
        peaks_of(llm, 1)
        plain = peaks_of(llm, 2)
        detailed = peaks_of(llm, 3, prompt_logprobs=TOP, logprobs=TOP)
    assert sum(detailed.values()) - sum(plain.values()) <= MOST_ADDED, (plain, detailed)


def peaks_of(llm: LLM, start: int, **params: int) -> dict[str, int]:
    """The peak of every process, the caller's with its results included, while a prompt is computed."""
    pids = {"caller": os.getpid(), **tree_processes(llm)}
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what is held now
    prompt = [(start + 37 * place) % 150_000 for place in range(LENGTH)]
    [output] = llm.generate(prompt, SamplingParams(max_tokens=8, ignore_eos=True, **params), use_tqdm=False)
    assert len(output.outputs.token_ids) == 8, output.error_msg
    if params:
        assert len(output.prompt_logprobs) == LENGTH
        assert all(len(position) >= TOP for position in output.prompt_logprobs[1:])
    statuses = {role: Path(f"/proc/{pid}/status").read_text() for role, pid in pids.items()}
    return {role: int(status.split("VmHWM:")[1].split()[0]) * 1024 for role, status in statuses.items()}
