"""How a tree begins and ends when nothing goes wrong, and what a caller may do around it."""

import gc
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from builders.watching import assert_gone, is_running, runtime_folders, tree_processes, wait_until

from penstock import LLM, ClosedError, ConfigError, ModelNotFoundError, SamplingParams

STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256, "quiet": True}


def test_close_ends_the_tree_and_a_second_close_does_nothing(model_folder):
    llm = LLM(model_folder, **STAND_IN)
    pids = tree_processes(llm).values()
    llm.close()
    assert not any(map(is_running, pids))
    llm.close()
    with pytest.raises(ClosedError, match="closed"):
        llm.generate("x", use_tqdm=False)


def test_leaving_the_with_block_ends_the_tree_and_its_folder(model_folder):
    before = runtime_folders()
    with LLM(model_folder, **STAND_IN) as llm:
        pids = tree_processes(llm).values()
        assert runtime_folders() > before
    assert not any(map(is_running, pids))
    assert runtime_folders() <= before


def test_an_object_nobody_holds_takes_its_tree_with_it(model_folder):
    llm = LLM(model_folder, **STAND_IN)
    pids = list(tree_processes(llm).values())
    del llm
    gc.collect()
    assert_gone(pids)


def test_the_end_of_the_interpreter_ends_the_tree(start_script):
    script = start_script(
        "from penstock import LLM\n"
        "llm = LLM(MODEL, load_format='stand-in', max_model_len=256, num_gpu_blocks_override=64, quiet=True)\n"
        "print(*[child.popen.pid for child in llm._session.transport.tree.children], flush=True)\n"
    )
    output, errors = script.communicate(timeout=30)
    assert script.returncode == 0, errors
    assert errors == ""
    assert_gone(map(int, output.split()))


def test_several_models_live_side_by_side(stand_in, model_folder):
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    expected = stand_in.generate([[1, 2, 3]], params, use_tqdm=False)[0].outputs.token_ids
    with LLM(model_folder, **STAND_IN) as other:
        assert other.generate([[1, 2, 3]], params, use_tqdm=False)[0].outputs.token_ids == expected
        assert stand_in.generate([[1, 2, 3]], params, use_tqdm=False)[0].outputs.token_ids == expected


def test_threads_of_the_caller_may_share_the_object(stand_in):
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompts = [[number, number + 1, 3] for number in range(1, 9)]
    expected = [output.outputs.token_ids for output in stand_in.generate(prompts, params, use_tqdm=False)]
    got: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        got[number] = stand_in.generate([prompts[number]], params, use_tqdm=False)[0].outputs.token_ids

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [got[number] for number in range(8)] == expected


def test_a_forked_copy_says_that_it_cannot_be_used(stand_in):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            stand_in.generate("x", use_tqdm=False)
        except ClosedError as error:
            os.write(write_end, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"forked process" in os.read(read_end, 1000)
    assert stand_in.generate([[1]], SamplingParams(max_tokens=1), use_tqdm=False)[0].error_code == 200


def test_ctrl_c_in_generate_aborts_what_runs_keeps_what_is_done_and_leaves_the_object_usable(start_script):
    script = start_script(
        """
from penstock import LLM, SamplingParams
llm = LLM(MODEL, load_format="stand-in", max_model_len=1024, num_gpu_blocks_override=256, quiet=True)
short, long = (SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 900))
try:
    print("started", flush=True)
    llm.generate([[1, 2]] * 3 + [[3, 4]] * 2, [short] * 3 + [long] * 2, use_tqdm=False)
except KeyboardInterrupt as interrupt:
    print("finished", len(interrupt.results), flush=True)
print("again", len(llm.generate([[1, 2]], short, use_tqdm=False)[0].outputs.token_ids))
while (stats := llm.stats()).running: pass
print("free", stats.free_blocks == stats.blocks)
""",
        PENSTOCK_FAULTS="worker.step=delay:0.05",
    )
    assert script.stdout.readline() == "started\n", script.stderr.read()
    threading.Timer(1.0, script.send_signal, (signal.SIGINT,)).start()
    output, errors = script.communicate(timeout=30)
    assert output.split("\n")[:3] == ["finished 3", "again 1", "free True"], errors


def test_a_module_beside_the_script_is_not_picked_up_by_the_children(start_script, tmp_path):
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('picked up')")
    script = start_script(
        "import sys\n"
        "own = sys.path.pop(0)\n"
        "from penstock import LLM\n"
        "import msgspec\n"
        "sys.path.insert(0, own)\n"
        "LLM(MODEL, load_format='stand-in', max_model_len=256, num_gpu_blocks_override=64, quiet=True).close()\n"
        "print('fine')\n"
    )
    output, errors = script.communicate(timeout=30)
    assert output == "fine\n", errors


def test_no_main_guard_is_needed_and_a_running_event_loop_does_not_matter(start_script):
    script = start_script(
        """
import asyncio
from penstock import LLM, SamplingParams

async def main():
    options = {"load_format": "stand-in", "max_model_len": 256, "num_gpu_blocks_override": 64, "quiet": True}
    with LLM(MODEL, **options) as llm:
        [output] = llm.generate([[1, 2]], SamplingParams(max_tokens=4, ignore_eos=True))
        print(len(output.outputs.token_ids))

asyncio.run(main())
"""
    )
    output, errors = script.communicate(timeout=30)
    assert output == "4\n", errors


def test_importing_the_package_loads_no_torch():
    code = "import sys, penstock; penstock.LLM; print(sorted({'torch', 'transformers', 'zmq'} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torch" not in output
    assert "transformers" not in output


def test_front_end_engine_and_detokenizer_never_load_torch(llm):
    roles = {child.role: psutil.Process(child.popen.pid) for child in llm._session.transport.tree.children}
    loaded = {role: any("libtorch" in entry.path for entry in process.memory_maps()) for role, process in roles.items()}
    assert loaded == {"worker 0": True, "engine": False, "detokenizer": False}


def test_a_model_that_is_nowhere_names_the_places(tmp_path):
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        LLM(tmp_path / "nowhere", quiet=True)


def test_a_context_beyond_the_models_own_is_refused_with_the_figure(model_folder):
    with pytest.raises(ConfigError, match="max_model_len"):
        LLM(model_folder, max_model_len=10_000_000, quiet=True)


def test_memory_that_does_not_hold_one_request_is_refused_with_the_figure_that_would(model_folder):
    with pytest.raises((ConfigError, MemoryError), match="max_model_len"):
        LLM(model_folder, max_model_len=512, num_gpu_blocks_override=2, quiet=True)


def test_an_idle_tree_sleeps(llm):
    """Not a speed: an idle process that is woken at all is woken by something that spins."""
    llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2), use_tqdm=False)
    processes = [psutil.Process(pid) for pid in tree_processes(llm).values()]

    def is_asleep_for_a_second() -> bool:
        before = [sum(process.cpu_times()[:2]) for process in processes]
        threading.Event().wait(1.0)
        return sum(sum(process.cpu_times()[:2]) for process in processes) - sum(before) <= 0.02

    wait_until(is_asleep_for_a_second, 10, "a second of rest")
