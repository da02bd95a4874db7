"""From a launch to a runner that can take steps, in this process."""

from pathlib import Path

import pytest
import torch
from builders.runner_harness import TinyEngine, prompt
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError, OutOfMemoryError
from penstock.protocol.messages import Allocate
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes import faults
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.trace import Trace
from penstock.worker.start.start import Start


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), "llama")


def started(model_folder: Path, directory: Path, **options) -> Start:
    config = EngineConfig.from_options(model_folder, device="cpu", **options)
    return Start(Launch(config, str(model_folder), str(model_folder), torch.get_num_threads()), 0, directory)


def test_what_was_planned_is_allocated_and_computes(model_folder, tmp_path):
    start = started(
        model_folder, tmp_path, max_num_seqs=3, max_model_len=100, kv_cache_dtype="bf16", deterministic=True
    )
    plan = start.plan()
    assert (plan.device, plan.num_blocks, plan.max_model_len, plan.model_context) == ("cpu", 12, 100, 1024)
    assert plan.block_bytes == 32 * 2 * 2 * 2 * 16 * 2  # tokens × keys and values × layers × heads × size × bytes
    runner = start.runner(Allocate([plan.num_blocks], plan.max_model_len, [0]), Trace(None, ""))
    assert plan.kv_dtype == "bf16" and runner.memory.groups[0].num_blocks == 12
    assert len(runner.table.is_taken) == 3 and start.model.backend.is_deterministic
    start.begin_background_work(runner)
    answers = TinyEngine(runner).run(prompt(0, [5, 6, 7]), prompt(1, [5, 6], max_tokens=30))
    assert [len(answer.tokens) for answer in answers] == [8, 30]
    start.close()


def test_memory_that_cannot_be_had_is_named(model_folder, tmp_path, monkeypatch):
    start = started(model_folder, tmp_path)
    plan = start.plan()
    monkeypatch.setattr(faults, "_text", "worker.allocate=memory")
    with pytest.raises(OutOfMemoryError, match=f"{plan.num_blocks:,} KV blocks were planned"):
        start.runner(Allocate([plan.num_blocks], plan.max_model_len, [0]), Trace(None, ""))


def test_a_context_beyond_the_model_is_refused(model_folder, tmp_path):
    with pytest.raises(ConfigError, match="1,024"):
        started(model_folder, tmp_path, max_model_len=1025).plan()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_card_that_is_not_there_is_named(model_folder, tmp_path):
    config = EngineConfig.from_options(model_folder, device="cuda")
    with pytest.raises(ConfigError, match="no CUDA device"):
        Start(Launch(config, str(model_folder), str(model_folder), 1), 0, tmp_path)


def test_broken_logits_can_be_injected(model_folder, tmp_path, monkeypatch):
    start = started(model_folder, tmp_path, max_model_len=100)
    plan = start.plan()
    runner = start.runner(Allocate([plan.num_blocks], plan.max_model_len, [0]), Trace(None, ""))
    right = TinyEngine(runner).run(prompt(0, [5, 6, 7]), prompt(1, [8, 9]))
    monkeypatch.setattr(faults, "_text", "worker.logits=nan@4")
    fresh = start.runner(Allocate([plan.num_blocks], plan.max_model_len, [0]), Trace(None, ""))
    broken, other = TinyEngine(fresh).run(prompt(0, [5, 6, 7]), prompt(1, [8, 9]))
    assert broken.finish_reason == "error" and "not finite" in broken.error
    assert broken.tokens == right[0].tokens[:3] and other == right[1]
