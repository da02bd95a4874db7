"""Whatever dies, in whatever state: the whole tree is gone, and the caller is told what died.

Mostly on the stand-in worker, which starts without torch. Each process and each state has its quick case; all pairs are
long.
"""

import os
import signal

import pytest
from builders.starts import STAND_IN
from builders.watching import assert_gone, bounded, runtime_folders, stop, tree_processes

from penstock import LLM, EngineDeadError, SamplingParams
from penstock.frontend.session.tree import tree
from penstock.protocol.processes import process

ROLES = ("worker 0", "engine", "detokenizer")
ENDLESS = SamplingParams(max_tokens=400, ignore_eos=True)
LONG_PROMPT = [number % 200 + 1 for number in range(400)]
REAL = {"max_model_len": 1024, "kv_cache_memory": "32MiB"}
# A step takes a moment, so that a kill finds the tree at work.
SLOW = "worker.step=delay:0.2"
LONG = pytest.mark.long


# Two ranks that compute wait for one another in memory that they share.
REAL_RANKS = {"tensor_parallel_size": 2, "num_threads": 2, **REAL}


@pytest.mark.parametrize("options, role", [
    *((STAND_IN, role) for role in ROLES), ({"tensor_parallel_size": 2, **STAND_IN}, "worker 1"),
    pytest.param(REAL_RANKS, "worker 1", marks=LONG),
])  # fmt: skip
def test_a_death_during_decode_ends_the_tree_and_names_what_died(model_folder, monkeypatch, options, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW)
    llm = LLM(model_folder, quiet=True, **options)
    pids = tree_processes(llm)

    def read() -> None:
        for number, _ in enumerate(llm.stream([5, 6, 7], ENDLESS)):
            if number == 2:
                os.kill(pids[role], signal.SIGKILL)

    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        bounded(read)
    assert_gone(pids.values())
    with pytest.raises(EngineDeadError, match=role):
        llm.generate("again", use_tqdm=False)
    for _ in range(2):
        assert f": dead (The {role} process " in repr(llm)
        llm.close()


def test_whoever_ends_a_tree_gives_it_less_than_three_seconds_before_it_is_killed(model_folder, monkeypatch):
    """README's bound. What is added up is the time that the code allows, for a busy machine may take any."""
    allowed = [tree._LAST_WORDS_SECONDS]
    wait_for_ends = process.wait_for_ends

    def noted(children, seconds):
        if len(children) > 1:  # a single one has been killed already
            allowed.append(seconds)
        return wait_for_ends(children, seconds)

    monkeypatch.setattr(process, "wait_for_ends", noted)
    llm = LLM(model_folder, quiet=True, **STAND_IN)
    pids = tree_processes(llm).values()
    stop(*pids)  # so that each bound is reached
    bounded(llm.close)
    assert_gone(pids)
    assert len(allowed) == 3 and sum(allowed) < 3, allowed


def test_a_row_that_went_wrong_ends_its_request_alone(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.logits=nan@3")
    llm = LLM(model_folder, quiet=True, **REAL)
    [output] = llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), use_tqdm=False)
    assert (output.error_code, output.outputs.finish_reason) == (500, "error")
    assert len(output.outputs.token_ids) == 2
    assert llm.generate([[1, 2, 3]], SamplingParams(max_tokens=6), use_tqdm=False)[0].error_code == 200
    llm.close()


@pytest.mark.parametrize("role", ["engine", *(pytest.param(role, marks=LONG) for role in ROLES if role != "engine")])
def test_a_death_during_prefill_ends_the_tree_and_names_what_died(model_folder, monkeypatch, role):
    # The first steps of this prompt only compute; the process that dies does so at its own third event.
    point = {"worker 0": "worker.step", "engine": "engine.plan", "detokenizer": "detokenizer.tokens"}[role]
    visit = 1 if role == "detokenizer" else 3
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}=die@{visit}")
    llm = LLM(model_folder, max_num_batched_tokens=64, quiet=True, **STAND_IN)
    pids = tree_processes(llm)
    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        bounded(lambda: llm.generate([LONG_PROMPT], ENDLESS, use_tqdm=False))
    assert_gone(pids.values())


# Idle, both workers wait for a message in the same call, and the same thread watches over both
# (protocol/processes/child.py).
@pytest.mark.parametrize("role", ["detokenizer", *(pytest.param(role, marks=LONG) for role in ROLES[:2])])
def test_a_death_while_idle_is_noticed_without_a_request(model_folder, role):
    llm = LLM(model_folder, quiet=True, **STAND_IN)
    pids = tree_processes(llm)
    os.kill(pids[role], signal.SIGKILL)
    assert_gone(pids.values())
    with pytest.raises(EngineDeadError, match=role):
        llm.generate("hello", use_tqdm=False)


@pytest.mark.parametrize("role", ["worker 0", *(pytest.param(role, marks=LONG) for role in ROLES[1:])])
def test_a_death_during_start_up_is_raised_by_the_constructor(model_folder, monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{role.split()[0]}.start=die@1")
    before = runtime_folders()
    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        LLM(model_folder, quiet=True, **STAND_IN)
    assert runtime_folders() <= before


def test_an_error_in_the_worker_is_raised_with_its_own_traceback(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=error@2")
    llm = LLM(model_folder, quiet=True, **STAND_IN)
    with pytest.raises(EngineDeadError, match="Injected fault at worker.step") as raised:
        bounded(lambda: llm.generate([[1, 2, 3]], ENDLESS, use_tqdm=False))
    assert "Traceback" in str(raised.value.__cause__)
    assert_gone(tree_processes(llm).values())
