"""How a tree begins and ends when nothing goes wrong, what it says of itself, and what a caller may do around it."""

import asyncio
import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders.starts import STAND_IN
from builders.watching import (
    BOUND_SECONDS,
    assert_gone,
    is_running,
    loop_face,
    runtime_folders,
    stopped,
    tree_processes,
)

from penstock import (
    LLM,
    AsyncLLM,
    ClosedError,
    ConfigError,
    EngineDeadError,
    ModelNotFoundError,
    RequestError,
    SamplingParams,
)

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def test_a_tree_says_how_it_is_lives_beside_others_and_ends_once_with_its_folder(stand_in, model_folder):
    before = runtime_folders()
    expected = stand_in.generate([[1, 2, 3]], GREEDY, use_tqdm=False)[0].outputs.token_ids
    with LLM(model_folder, served_model_name="small", quiet=True, **STAND_IN) as llm:
        for each in (llm, stand_in):
            assert each.generate([[1, 2, 3]], GREEDY, use_tqdm=False)[0].outputs.token_ids == expected
        pids = tree_processes(llm).values()
        assert runtime_folders() - before, "though what a killed tree left may go"
        with stopped(*pids):
            assert repr(llm).startswith("<LLM 'small': ready, "), "which nobody is asked for"
    assert not any(map(is_running, pids))
    assert runtime_folders() <= before
    assert repr(llm).startswith("<LLM 'small': closed, ")
    llm.close()
    with pytest.raises(ClosedError, match="closed"):
        llm.generate("x", use_tqdm=False)
    llm = LLM(model_folder, quiet=True, **STAND_IN)
    pids = list(tree_processes(llm).values())
    del llm  # which nobody holds any more
    gc.collect()
    assert_gone(pids)


def test_a_plain_script_needs_no_guard_and_no_close_and_its_folder_is_nobodys_path(start_script, tmp_path):
    """It works within a running event loop; its children pick up no module beside it, and no process outlives it."""
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('picked up')")
    script = start_script(f"""
import asyncio, sys
own = sys.path.pop(0)
from penstock import LLM, SamplingParams
import msgspec
sys.path.insert(0, own)

async def main():
    global llm
    llm = LLM(MODEL, quiet=True, **{STAND_IN!r})
    [output] = llm.generate([[1, 2]], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
    print(len(output.outputs.token_ids), *[child.popen.pid for child in llm._session.transport.tree.children])

asyncio.run(main())
""")
    output, errors = script.communicate(timeout=120)
    assert script.returncode == 0 and errors == "", errors
    count, *pids = map(int, output.split())
    assert count == 4 and len(pids) == 3
    assert_gone(pids)


def test_threads_of_the_caller_may_share_the_object_and_a_forked_copy_says_that_it_cannot_be_used(stand_in):
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompts = [[number, number + 1, 3] for number in range(1, 9)]
    expected = [output.outputs.token_ids for output in stand_in.generate(prompts, params, use_tqdm=False)]
    with ThreadPoolExecutor(8) as threads:
        batches = [threads.submit(stand_in.generate, [prompt], params, use_tqdm=False) for prompt in prompts]
    assert [batch.result()[0].outputs.token_ids for batch in batches] == expected
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            stand_in.generate("x", use_tqdm=False)
        except ClosedError as error:
            os.write(write_end, f"{error}\n{stand_in!r}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    told, shown = os.read(read_end, 4096).split(b"\n")
    os.close(read_end)
    os.close(write_end)
    assert b"forked process" in told and b": a copy in a forked process, " in shown
    assert stand_in.generate([[1]], SamplingParams(max_tokens=1), use_tqdm=False)[0].error_code == 200


def test_ctrl_c_in_generate_aborts_what_runs_keeps_what_is_done_and_leaves_the_object_usable(start_script):
    script = start_script(
        f"""
from penstock import LLM, SamplingParams
llm = LLM(MODEL, quiet=True, **{STAND_IN!r})
short, long = (SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 900))
run, taken = llm._run, []

def counted(*arguments, **named):
    for each in run(*arguments, **named):
        yield each
        taken.append(each)  # the caller has it, and comes for the next one
        if len(taken) == 3: print("two run", flush=True)

llm._run = counted
try:
    llm.generate([[1, 2]] * 3 + [[3, 4]] * 2, [short] * 3 + [long] * 2, use_tqdm=False)
except KeyboardInterrupt as interrupt:
    print("finished", len(interrupt.results), flush=True)
print("again", len(llm.generate([[1, 2]], short, use_tqdm=False)[0].outputs.token_ids))
while (stats := llm.stats()).running: pass
print("free", stats.free_blocks == stats.blocks)
""",
        PENSTOCK_FAULTS="worker.step=delay:0.2",
    )
    assert script.stdout.readline() == "two run\n", script.stderr.read()
    script.send_signal(signal.SIGINT)
    output, errors = script.communicate(timeout=120)
    assert output.split("\n")[:3] == ["finished 3", "again 1", "free True"], errors


# Also the way of a worker's own words to the caller; a context beyond the model's is refused in tests/worker.
def test_a_model_that_is_nowhere_and_memory_that_does_not_hold_one_request_are_refused(model_folder, tmp_path):
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        LLM(tmp_path / "nowhere", quiet=True)
    with pytest.raises((ConfigError, MemoryError), match="max_model_len"):
        LLM(model_folder, max_model_len=512, num_gpu_blocks_override=2, quiet=True)


def test_a_tree_that_is_ready_tells_what_it_takes(llm, model_folder):
    plan, text = llm._session.plan, repr(llm)
    assert text.startswith(f"<LLM '{model_folder}': ready, {plan.device} ({plan.device_name}), ")
    assert f"{plan.dtype} weights" in text and "64 MiB KV cache" in text and "\n" not in text


# --- inside an event loop ---------------------------------------------------------------------------------------------


def test_in_a_loop_it_tells_that_it_starts_is_ready_and_is_closed_and_answers_as_ever(stand_in, model_folder):
    prompts = [[number, 3, 4] for number in range(1, 6)]
    expected = [output.outputs.token_ids for output in stand_in.generate(prompts, GREEDY, use_tqdm=False)]

    async def live() -> list[str]:
        llm = AsyncLLM(model_folder, quiet=True, **STAND_IN)
        told = [repr(llm)]

        async def streamed(prompt):
            return [token async for delta in llm.stream(prompt, GREEDY) for token in delta.outputs.token_ids]

        batch, *streams = await asyncio.gather(llm.generate(prompts, GREEDY), *map(streamed, prompts))
        assert [output.outputs.token_ids for output in batch] == streams == expected
        [chat] = await llm.chat([{"role": "user", "content": "hi"}], GREEDY)
        assert chat.outputs.finish_reason == "length"
        told.append(repr(llm))
        await llm.close()
        return [*told, repr(llm)]

    starting, ready, closed = asyncio.run(live())
    assert starting == f"<AsyncLLM '{model_folder}': starting>"
    assert ready.startswith(f"<AsyncLLM '{model_folder}': ready, ") and "KV cache" in ready
    assert ": closed, " in closed
    for kind in (LLM, AsyncLLM):
        assert repr(kind.__new__(kind)) == f"<{kind.__name__} '': not open>", "half made"


def test_an_aborted_request_keeps_what_it_has_with_code_499(stand_in):
    endless, worker = SamplingParams(max_tokens=500, ignore_eos=True, n=8), tree_processes(stand_in)["worker 0"]

    async def aborted():
        llm, last = loop_face(stand_in), None
        async for delta in llm.stream([1, 2], endless):
            if last is None and not delta.finished:
                for wrong in (5, None, b"1", [delta.request_id]):
                    with pytest.raises(RequestError, match="must be that of an output"):
                        await llm.abort(wrong)
                with stopped(worker):  # so that it isn't answered before it is aborted
                    if (await llm.stats()).running:
                        await llm.abort(delta.request_id)
                        await llm.stats()  # the engine takes both in their order
            last = delta
        return last

    # It may have ended before the worker stood still: then it is asked again.
    last = next(last for last in (asyncio.run(aborted()) for _ in range(50)) if last.error_code != 200)
    assert (last.error_code, last.outputs.finish_reason, last.finished) == (499, "abort", True)


def test_cancelling_a_task_aborts_its_requests(stand_in):
    worker = tree_processes(stand_in)["worker 0"]

    async def cancelled():
        llm = loop_face(stand_in)
        with stopped(worker):  # no request can end before its task is cancelled
            task = asyncio.create_task(llm.generate([[1, 2]] * 5, SamplingParams(max_tokens=500, ignore_eos=True)))
            async with asyncio.timeout(BOUND_SECONDS):
                while (stats := await llm.stats()).running + stats.waiting < 5:
                    pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with asyncio.timeout(BOUND_SECONDS):
            while (stats := await llm.stats()).running or stats.waiting:
                pass
        return stats

    before = stand_in.stats()
    stats = asyncio.run(cancelled())
    assert stats.free_blocks == stats.blocks
    assert stats.generated_tokens - before.generated_tokens < 5 * 500


def test_what_goes_wrong_at_the_start_is_raised_by_the_first_await_and_told(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "engine.start=die@1")

    async def fails(llm, error):
        with pytest.raises(error):
            await llm.generate("x")
        return repr(llm)

    async def both():
        return (
            await fails(AsyncLLM(model_folder, quiet=True, **STAND_IN), EngineDeadError),
            await fails(AsyncLLM(tmp_path, connect="auto", quiet=True), ModelNotFoundError),
        )

    died, nowhere = asyncio.run(both())
    assert ": failed (" in died and "engine" in died
    assert nowhere == (
        f"<AsyncLLM '{tmp_path}': failed ({tmp_path} has no config.json, so it is not a model's folder. "
        "Give the folder that holds config.json and the *.safetensors files, or a GGUF file.)>"
    )
