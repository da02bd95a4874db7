"""A mixture 1.5 times as large as the limit of a control group answers as it does without one, and the table says why
it is slow; one that can't be mapped is refused before it is read."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.memory_limit import memory_limit
from builders.tiny_model import tiny_model

pytestmark = pytest.mark.long

SHAPE = {
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
    folder = tiny_model(tmp_path_factory.mktemp("model"), "qwen3_moe", shards=6, **SHAPE)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def limit_of(model: Path) -> int:
    return sum(path.stat().st_size for path in model.glob("*.safetensors")) * 2 // 3


def ran(model: Path, cache: Path, group: Path | str = "", **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT, str(model), str(group), json.dumps(options)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_answers_with_the_tokens_of_a_machine_that_holds_it(model, cache, ranks):
    with memory_limit(limit_of(model)) as group:
        first = ran(model, cache, group, tensor_parallel_size=ranks)
        again = ran(model, cache, group, tensor_parallel_size=ranks)
    wanted = ran(model, cache, quiet=True)
    for limited in (first, again):
        assert limited.returncode == 0, limited.stderr
        assert json.loads(limited.stdout) == json.loads(wanted.stdout)
        assert "The model is larger than memory: its weights are mapped from the disk" in limited.stderr
        assert "stay in memory" in limited.stderr


def test_one_that_cannot_be_mapped_is_refused_before_it_is_read(model, cache):
    with memory_limit(limit_of(model)) as group:
        refused = ran(model, cache, group, load_format="dummy")
        most = next(group.parent.glob("memory.max_usage_in_bytes"), None)
        used = None if most is None else int(most.read_text())
    assert refused.returncode != 0
    assert "can't be mapped from the disk: weights that are made up" in refused.stderr
    assert "Nothing was read." in refused.stderr
    assert used is None or used < limit_of(model) // 2
