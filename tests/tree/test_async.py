"""`AsyncLLM`: the same answers inside an event loop, with cancellation."""

import asyncio

import pytest

from penstock import AsyncLLM, EngineDeadError, RequestError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
STAND_IN = {"load_format": "stand-in", "max_model_len": 1024, "num_gpu_blocks_override": 256, "quiet": True}


def test_awaiting_streaming_and_chatting_at_once_gives_the_blocking_answers(stand_in, model_folder):
    prompts = [[number, 3, 4] for number in range(1, 6)]
    expected = [output.outputs.token_ids for output in stand_in.generate(prompts, GREEDY, use_tqdm=False)]

    async def main():
        async with AsyncLLM(model_folder, **STAND_IN) as llm:

            async def streamed(prompt):
                return [token async for delta in llm.stream(prompt, GREEDY) for token in delta.outputs.token_ids]

            batch, *streams = await asyncio.gather(llm.generate(prompts, GREEDY), *map(streamed, prompts))
            [chat] = await llm.chat([{"role": "user", "content": "hi"}], GREEDY)
            return [output.outputs.token_ids for output in batch], streams, chat

    batch, streams, chat = asyncio.run(main())
    assert batch == streams == expected
    assert chat.outputs.finish_reason == "length"


def test_an_aborted_request_keeps_what_it_has_with_code_499(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.02")

    async def main():
        async with AsyncLLM(model_folder, **STAND_IN) as llm:
            deltas = []
            async for delta in llm.stream([1, 2], SamplingParams(max_tokens=900, ignore_eos=True)):
                deltas.append(delta)
                if len(deltas) == 2:
                    for wrong in (5, None, b"1", [delta.request_id]):
                        with pytest.raises(RequestError, match="must be that of an output"):
                            await llm.abort(wrong)
                    await llm.abort(delta.request_id)
            return deltas

    last = asyncio.run(main())[-1]
    assert (last.error_code, last.outputs.finish_reason, last.finished) == (499, "abort", True)


def test_cancelling_a_task_aborts_its_requests(model_folder):
    async def main():
        async with AsyncLLM(model_folder, **STAND_IN) as llm:
            task = asyncio.create_task(llm.generate([[1, 2]] * 5, SamplingParams(max_tokens=1000, ignore_eos=True)))
            await llm.generate([[3]], GREEDY)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while (stats := llm._session.transport.stats()).running:
                pass
            return stats

    stats = asyncio.run(main())
    assert stats.free_blocks == stats.blocks


def test_what_goes_wrong_at_the_start_is_raised_by_the_first_await(model_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAULTS", "engine.start=die@1")

    async def main():
        await AsyncLLM(model_folder, **STAND_IN).generate("x")

    with pytest.raises(EngineDeadError, match="engine"):
        asyncio.run(main())
