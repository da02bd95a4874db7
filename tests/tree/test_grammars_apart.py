"""Ambiguous grammars, whose masks take ever longer, beside a plain answer: it goes on at its own pace."""

import asyncio
from contextlib import suppress

import psutil
import pytest

from penstock import AsyncLLM, SamplingParams

AMBIGUOUS = "start: s\ns: /[a-z]/ s /[a-z]/ | /[a-z]/ | s s | \n"
# Sixty ways to go on from each letter: it is followed apart from its beginning.
DEAR = "start: s\ns: " + " | ".join(f"x{i} s" for i in range(60)) + ' | "."\n'
DEAR += "".join(f"x{i}: /[a-z]/ x{(i + 1) % 60} | /[a-z]/ x{(i + 7) % 60} | /[a-z]/\n" for i in range(60))
NUM_GUIDED, NUM_PLAIN = 24, 150


def guided(seed, grammar=AMBIGUOUS, **more):
    return SamplingParams(temperature=1.0, seed=seed, guided_grammar=grammar, **more)


def test_a_plain_answer_does_not_keep_step_with_ambiguous_grammars():
    """In one step with them it would have as many tokens as they have, and they would end first."""

    async def run():
        async with AsyncLLM("pocket", max_model_len=512, max_num_seqs=32, quiet=True) as llm:
            params = [guided(seed, max_tokens=120) for seed in range(NUM_GUIDED)]
            others = [asyncio.create_task(llm.generate("x", each)) for each in params]
            while (await llm.stats()).generated_tokens < 15 * NUM_GUIDED:  # they have begun to be dear
                await asyncio.sleep(0.01)
            plain = SamplingParams(temperature=0, max_tokens=NUM_PLAIN, ignore_eos=True)
            [output] = await llm.generate("What is", plain)
            assert len(output.outputs.token_ids) == NUM_PLAIN
            num_running = sum(not other.done() for other in others)
            for other in others:
                other.cancel()
            return num_running

    assert asyncio.run(run()) == NUM_GUIDED


async def answers(llm, *seeds, max_tokens=16, **more):
    params = [guided(seed, max_tokens=max_tokens, **more) for seed in seeds]
    found = await asyncio.gather(*(llm.generate("x", each) for each in params))
    return [list(output.outputs.token_ids) for [output] in found]


def test_an_ambiguous_answer_is_the_same_alone_and_among_others():
    async def run():
        async with AsyncLLM("pocket", max_model_len=512, max_num_seqs=32, quiet=True) as llm:
            many = await answers(llm, *range(12))
            assert [*await answers(llm, 3), *await answers(llm, 11)] == [many[3], many[11]]

    asyncio.run(run())


def followers():
    """The processes that follow grammars of models of this process."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "penstock.engine.grammar.remote_process" in process.cmdline():
                yield process


@pytest.mark.long
def test_answers_are_the_same_when_the_process_that_follows_them_is_killed():
    async def run():
        async with AsyncLLM("pocket", max_model_len=512, max_num_seqs=32, quiet=True) as llm:
            whole = await answers(llm, *range(3), max_tokens=5, grammar=DEAR)
            before = (await llm.stats()).generated_tokens
            again = asyncio.create_task(answers(llm, *range(3), max_tokens=5, grammar=DEAR))
            while (await llm.stats()).generated_tokens < before + 3:
                await asyncio.sleep(0.005)
            [follower] = followers()
            follower.kill()
            assert await again == whole
            assert [each.pid for each in followers()] != [follower.pid]

    asyncio.run(run())
