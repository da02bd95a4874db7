"""From a launch to a runner that can take steps, in this process: memory that was planned, cores of a node, and plans
as the engine sends them.
"""

import os
from pathlib import Path

import pytest
import torch
from builders.cases import for_each
from builders.hand_planned import plan
from builders.native_variants import forced, needs_variant
from builders.runner_harness import TinyEngine, prompt
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError, OutOfMemoryError
from penstock.protocol.messages import Allocate, MaskFrame, Stop, WorkerInbox
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes import faults
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.sockets import Inbox, Outbox
from penstock.protocol.processes.trace import Trace
from penstock.worker.__main__ import Plans, Stopped
from penstock.worker.ranks.affinity import cores_by_node, share
from penstock.worker.start.start import Start
from penstock.worker.survey import survey

MIB = 1 << 20


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), "llama")


def started(model_folder: Path, directory: Path, **options) -> Start:
    config = EngineConfig.from_options(model_folder, **{"device": "cpu", **options})
    return Start(Launch(config, str(model_folder), str(model_folder), torch.get_num_threads()), 0, directory)


def test_what_was_planned_is_allocated_and_computes(model_folder, tmp_path):
    start = started(
        model_folder, tmp_path, max_num_seqs=3, max_model_len=100, kv_cache_dtype="bf16", deterministic=True
    )
    planned = start.plan()
    assert (planned.device, planned.num_blocks, planned.max_model_len, planned.model_context) == ("cpu", 12, 100, 1024)
    assert planned.block_bytes == 32 * 2 * 2 * 2 * 16 * 2  # tokens × keys and values × layers × heads × size × bytes
    runner = start.runner(Allocate([planned.num_blocks], planned.max_model_len, [0]), Trace(None, ""))
    assert planned.kv_dtype == "bf16" and runner.memory.groups[0].num_blocks == 12
    assert len(runner.table.is_taken) == 3 and start.model.backend.is_deterministic
    start.begin_background_work(runner)
    answers = TinyEngine(runner).run(prompt(0, [5, 6, 7]), prompt(1, [5, 6], max_tokens=30))
    assert [len(answer.tokens) for answer in answers] == [8, 30]
    start.close()


@needs_variant
def test_a_portable_start_says_so_and_plans_float32_keys_and_values(model_folder, tmp_path):
    start = started(model_folder, tmp_path, dtype="bfloat16", deterministic="portable")
    planned = start.plan()
    assert planned.kernels.endswith(", portable") and planned.kv_dtype == "fp32"
    start.close()


@for_each("family", ["llama", "gemma2", "qwen3_5_text", "deepseek_v2"])
def test_a_start_takes_what_a_survey_says_beforehand(family, tmp_path):
    folder = tiny_model(tmp_path / "model", family)
    [said] = survey([str(folder)], with_torch=False).models
    start = started(folder, tmp_path)
    planned = start.plan()
    assert planned.kv_bytes == said.taken_kv_bytes
    # Of norms, padding, the header of a file, and pages of which a process has more than it asked for.
    assert abs(planned.taken_bytes - said.taken_bytes) < 8 * MIB
    start.close()


def test_memory_a_context_or_a_card_that_cannot_be_had_is_named(model_folder, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="1,024"):
        started(model_folder, tmp_path, max_model_len=1025).plan()
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device|is a CPU build"):
            started(model_folder, tmp_path, device="cuda")
    start = started(model_folder, tmp_path)
    planned = start.plan()
    monkeypatch.setattr(faults, "_text", "worker.allocate=memory")
    for limits in ("", "ulimit -v 600000"):
        monkeypatch.setattr("penstock.worker.start.start.inherited_limits", lambda limits=limits: limits)
        with pytest.raises(OutOfMemoryError, match=f"{planned.num_blocks:,} KV blocks were planned .*{limits}"):
            start.runner(Allocate([planned.num_blocks], planned.max_model_len, [0]), Trace(None, ""))


def test_broken_logits_can_be_injected(model_folder, tmp_path, monkeypatch):
    start = started(model_folder, tmp_path, max_model_len=100)
    planned = start.plan()
    runner = start.runner(Allocate([planned.num_blocks], planned.max_model_len, [0]), Trace(None, ""))
    right = TinyEngine(runner).run(prompt(0, [5, 6, 7]), prompt(1, [8, 9]))
    monkeypatch.setattr(faults, "_text", "worker.logits=nan@4")
    fresh = start.runner(Allocate([planned.num_blocks], planned.max_model_len, [0]), Trace(None, ""))
    broken, other = TinyEngine(fresh).run(prompt(0, [5, 6, 7]), prompt(1, [8, 9]))
    assert broken.finish_reason == "error" and "not finite" in broken.error
    assert broken.tokens == right[0].tokens[:3] and other == right[1]


# --- ranks on a CPU share its cores out among them, node by node ------------------------------------------------------


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Two nodes of four cores each, of which core 5 is not ours."""
    for node, cores in enumerate(("0-3", "4-5,8-9")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 8, 9})
    return tmp_path


def test_cores_of_one_node_stand_next_to_each_other(nodes):
    assert cores_by_node(None, nodes) == [0, 1, 2, 3, 4, 8, 9]
    assert cores_by_node([1, 0], nodes) == [4, 8, 9, 0, 1, 2, 3]
    assert cores_by_node(None, nodes / "none") == [0, 1, 2, 3, 4, 8, 9]  # a machine that tells no nodes has one
    with pytest.raises(ConfigError, match=r"NUMA nodes \[0, 1\], not \[2\]"):
        cores_by_node([0, 2], nodes)


def test_ranks_share_no_core_while_there_are_enough():
    parts = [share(rank, 3, [0, 1, 2, 3, 4, 8, 9]) for rank in range(3)]
    assert set.union(*parts) == {0, 1, 2, 3, 4, 8, 9} and sum(map(len, parts)) == 7
    assert [share(rank, 3, [4, 5]) for rank in range(3)] == [{4}, {4}, {5}]


# --- plans in order, masks whenever they are wanted, a stop at any time -----------------------------------------------


def test_a_mask_may_come_before_its_plan_or_after_the_next_and_a_stop_ends_any_wait(tmp_path):
    plans, engine = Plans(Inbox(tmp_path, "worker0", WorkerInbox)), Outbox(tmp_path, "worker0")
    try:
        masks = [MaskFrame(step, b"", b"") for step in range(4)]
        for message in (masks[0], plan(0, []), plan(1, []), plan(2, []), masks[1], *masks[2:], plan(3, []), Stop()):
            engine.send(message)
        assert (plans.next().step, plans.mask(0).step, plans.next().step, plans.mask(1).step) == (0, 0, 1, 1)
        assert [plans.next().step for _ in range(2)] == [2, 3]
        plans.forget_masks(2)  # which was not needed
        assert list(plans._masks) == [3]
        with pytest.raises(Stopped):
            plans.mask(4)
    finally:
        engine.close()
        plans.inbox.close()


def test_where_drafts_could_change_an_answer_there_are_none_and_a_named_method_is_said_to_have_no_effect(
    model_folder, tmp_path
):
    with forced("none"):
        for deterministic in (False, True):
            start = started(model_folder, tmp_path, deterministic=deterministic, speculative_config="suffix")
            planned = start.plan()
            assert start.drafts == planned.is_deterministic == deterministic
            assert any("speculative_config has no effect" in note for note in planned.notes) == (not deterministic)
            start.close()
