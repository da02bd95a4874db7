"""`repr(llm)` tells model, state, device and memory in every state, and asks nobody for it."""

import asyncio
import os
import signal

import pytest
from builders.watching import tree_processes

from penstock import LLM, AsyncLLM, EngineDeadError, ModelNotFoundError

STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256, "quiet": True}


def test_a_model_that_is_ready_tells_where_it_is_and_what_it_takes(llm, model_folder):
    plan = llm._session.plan
    text = repr(llm)
    assert text.startswith(f"<LLM '{model_folder}': ready, {plan.device} ({plan.device_name}), ")
    assert f"{plan.dtype} weights" in text and "64 MiB KV cache" in text and "\n" not in text


def test_its_state_is_told_also_when_it_is_closed(model_folder):
    llm = LLM(model_folder, served_model_name="small", **STAND_IN)
    assert repr(llm).startswith("<LLM 'small': ready, ")
    llm.close()
    assert repr(llm).startswith("<LLM 'small': closed, ")


def test_one_whose_processes_have_died_says_what_died(model_folder):
    llm = LLM(model_folder, **STAND_IN)
    os.kill(tree_processes(llm)["worker 0"], signal.SIGKILL)
    with pytest.raises(EngineDeadError):
        llm.generate("x", use_tqdm=False)
    assert ": dead (The worker 0 process " in repr(llm)
    llm.close()
    assert ": dead (" in repr(llm)


def test_a_stopped_tree_is_not_waited_for(model_folder):
    llm = LLM(model_folder, **STAND_IN)
    processes = tree_processes(llm).values()
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert ": ready, " in repr(llm)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        llm.close()


def test_a_copy_in_a_forked_process_says_so(stand_in):
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, repr(stand_in).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b": a copy in a forked process, " in os.read(reading, 4096)


@pytest.mark.parametrize("kind", [LLM, AsyncLLM])
def test_half_made_objects_have_one_too(kind):
    assert repr(kind.__new__(kind)) == f"<{kind.__name__} '': not open>"


def test_an_async_one_tells_that_it_starts_is_ready_and_is_closed(model_folder):
    async def told():
        llm = AsyncLLM(model_folder, **STAND_IN)
        starting = repr(llm)
        await llm.ready()
        ready = repr(llm)
        await llm.close()
        return starting, ready, repr(llm)

    starting, ready, closed = asyncio.run(told())
    assert starting == f"<AsyncLLM '{model_folder}': starting>"
    assert ready.startswith(f"<AsyncLLM '{model_folder}': ready, ") and "KV cache" in ready
    assert ": closed, " in closed


def test_an_async_one_that_could_not_start_tells_why(tmp_path):
    async def told():
        llm = AsyncLLM(tmp_path, connect="auto", quiet=True)
        with pytest.raises(ModelNotFoundError):
            await llm.ready()
        return repr(llm)

    assert asyncio.run(told()) == (
        f"<AsyncLLM '{tmp_path}': failed ({tmp_path} has no config.json, so it is not a model's folder. "
        "Give the folder that holds config.json and the *.safetensors files, or a GGUF file.)>"
    )
