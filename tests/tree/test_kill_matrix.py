"""Whatever dies, in whatever state: the whole tree is gone within 3 s, and the caller is told what died.

Mostly on the stand-in worker, which starts without torch; one column with the real worker.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest
from builders.watching import assert_gone, is_running, runtime_folders, tree_processes, wait_until

from penstock import LLM, EngineDeadError, SamplingParams

ROLES = ("worker 0", "engine", "detokenizer")
ENDLESS = SamplingParams(max_tokens=400, ignore_eos=True)
LONG_PROMPT = [number % 200 + 1 for number in range(400)]
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256, "quiet": True}
REAL = {"max_model_len": 1024, "kv_cache_memory": "32MiB", "quiet": True}
# A step takes a moment, so that a kill finds the tree at work.
SLOW = {"PENSTOCK_FAULTS": "worker.step=delay:0.04"}


def kill_while_at_work(llm: LLM, role: str, prompt: list[int], chunks_before: int) -> None:
    """Kill one process after some deltas of a stream have come; the stream must raise, naming it."""
    pids = tree_processes(llm)
    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        for number, _ in enumerate(llm.stream(prompt, ENDLESS)):
            if number == chunks_before:
                os.kill(pids[role], signal.SIGKILL)
    assert_gone(pids.values())
    with pytest.raises(EngineDeadError, match=role):
        llm.generate("again", use_tqdm=False)


@pytest.mark.parametrize(
    "options, role",
    [
        *(pytest.param(STAND_IN, role, id=f"stand-in-{role}") for role in ROLES),
        # A worker that computes is no other one to those who outlive it, or whom it outlives.
        *(
            pytest.param(REAL, role, id=f"real-{role}", marks=[pytest.mark.long] * (role != "worker 0"))
            for role in ROLES
        ),
    ],
)
def test_a_death_during_decode_ends_the_tree_and_names_what_died(model_folder, monkeypatch, options, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", SLOW["PENSTOCK_FAULTS"])
    kill_while_at_work(LLM(model_folder, **options), role, [5, 6, 7], chunks_before=2)


@pytest.mark.parametrize("role", ROLES)
def test_a_death_during_prefill_ends_the_tree_and_names_what_died(model_folder, monkeypatch, role):
    # The first steps of this prompt only compute; the process that dies does so at its own third event.
    point = {"worker 0": "worker.step", "engine": "engine.plan", "detokenizer": "detokenizer.tokens"}[role]
    visit = 1 if role == "detokenizer" else 3
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{point}=die@{visit}")
    llm = LLM(model_folder, max_num_batched_tokens=64, **STAND_IN)
    pids = tree_processes(llm)
    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        llm.generate([LONG_PROMPT], ENDLESS, use_tqdm=False)
    assert_gone(pids.values())


# Idle, both workers wait for a message in the same call, and the same thread watches over both
# (protocol/processes/child.py).
@pytest.mark.parametrize("options", [STAND_IN, pytest.param(REAL, marks=pytest.mark.long)], ids=["stand-in", "real"])
@pytest.mark.parametrize("role", ROLES)
def test_a_death_while_idle_is_noticed_without_a_request(model_folder, options, role):
    llm = LLM(model_folder, **options)
    pids = tree_processes(llm)
    os.kill(pids[role], signal.SIGKILL)
    assert_gone(pids.values())
    with pytest.raises(EngineDeadError, match=role):
        llm.generate("hello", use_tqdm=False)


@pytest.mark.parametrize("role", ROLES)
def test_a_death_during_start_up_is_raised_by_the_constructor(model_folder, monkeypatch, role):
    monkeypatch.setenv("PENSTOCK_FAULTS", f"{role.split()[0]}.start=die@1")
    before = runtime_folders()
    with pytest.raises(EngineDeadError, match=f"{role}.*SIGKILL"):
        LLM(model_folder, **STAND_IN)
    assert runtime_folders() <= before


def test_an_error_in_the_worker_is_raised_with_its_own_traceback(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=error@2")
    llm = LLM(model_folder, **REAL)
    with pytest.raises(EngineDeadError, match="Injected fault at worker.step") as raised:
        llm.generate([[1, 2, 3]], ENDLESS, use_tqdm=False)
    assert "Traceback" in str(raised.value.__cause__)
    assert_gone(tree_processes(llm).values())


CALLER = """
import multiprocessing, sys, time
from penstock import LLM, SamplingParams

llm = LLM(MODEL, load_format="stand-in", max_model_len=1024, num_gpu_blocks_override=256, quiet=True)
if "fork" in STATE:
    held = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    held.start()
    print("forked", held.pid, flush=True)
for child in llm._session.transport.tree.children:
    print(child.role, child.popen.pid, flush=True)
print("ready", flush=True)
if "decode" in STATE:
    llm.generate([[1, 2, 3]] * 8, SamplingParams(max_tokens=900, ignore_eos=True), use_tqdm=False)
time.sleep(30)
"""


@pytest.mark.parametrize("state", ["idle", "decode", "idle fork"])
def test_when_the_caller_is_killed_its_tree_goes_too(start_script, state):
    caller = start_script(f"STATE = {state!r}\n{CALLER}", **SLOW)
    pids, forked = [], None
    for line in iter(caller.stdout.readline, "ready\n"):
        assert line, caller.stderr.read()
        name, pid = line.rsplit(maxsplit=1)
        if name == "forked":
            forked = int(pid)
        else:
            pids.append(int(pid))
    assert len(pids) == 3
    caller.kill()
    assert_gone(pids)
    if forked is not None:
        assert is_running(forked), "the point was that another process holds copies of the caller's pipes"
        os.kill(forked, signal.SIGKILL)


def test_when_the_caller_is_killed_during_start_up_no_child_stays(start_script):
    caller = start_script(f"STATE = 'start'\n{CALLER}", PENSTOCK_FAULTS="engine.start=delay:60")
    watched = psutil.Process(caller.pid)
    wait_until(lambda: len(watched.children()) == 3, 20, "three children")
    pids = [child.pid for child in watched.children()]
    caller.kill()
    assert_gone(pids)


def shared_memory() -> set[str]:
    """Named segments, without those of torch's OpenMP: other processes of this test run may load it meanwhile."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("__KMP_REGISTERED_LIB_")}


def test_what_a_killed_caller_leaves_is_swept_by_the_next_start(start_script, model_folder):
    caller = start_script(f"STATE = 'idle'\n{CALLER}")
    for line in iter(caller.stdout.readline, "ready\n"):
        assert line, caller.stderr.read()
    caller.kill()
    caller.wait()
    left, shared = runtime_folders(), shared_memory()
    LLM(model_folder, **STAND_IN).close()
    assert runtime_folders() < left
    assert shared_memory() <= shared


def test_ctrl_c_during_start_up_ends_the_children(start_script):
    caller = start_script(f"STATE = 'start'\n{CALLER}", PENSTOCK_FAULTS="engine.start=delay:60")
    watched = psutil.Process(caller.pid)
    wait_until(lambda: len(watched.children()) == 3, 20, "three children")
    pids = [child.pid for child in watched.children()]
    caller.send_signal(signal.SIGINT)
    assert_gone(pids)
    assert "KeyboardInterrupt" in caller.communicate(timeout=10)[1]
