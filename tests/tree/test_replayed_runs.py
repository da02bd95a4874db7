"""An earlier run that is replayed: its answers reach the worker as drafts and are right, and the new answers are the
same bits."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, ConfigError, RequestOutput, SamplingParams
from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.ledger import ledger

PARAMS = SamplingParams(temperature=0.8, max_tokens=40, ignore_eos=True, seed=3)
OPTIONS = {"max_model_len": 512, "kv_cache_memory": "64MiB", "quiet": True}


def question(number: int, *, is_edited: bool = False) -> list[dict[str, str]]:
    text = f"Why is {number} less than {number + 1}?" if is_edited else f"What is {number} + 2?"
    return [{"role": "user", "content": text}]


def write_lines(path: Path, edited: set[int]) -> None:
    """Lines of chats, some with two samples."""
    with open(path, "w") as file:
        for number in range(12):
            body: dict[str, Any] = {"messages": question(number, is_edited=number in edited), "n": 1 + number % 2}
            line = {"custom_id": f"line {number}", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")


def told(outputs: Iterable[RequestOutput]) -> list[list[int]]:
    return [answer.token_ids for output in outputs for answer in output.outputs]


def accepted(outputs: Iterable[RequestOutput]) -> list[int]:
    return [output.metrics.num_accepted_tokens for output in outputs if output.metrics]


@pytest.fixture(scope="module")
def plain() -> Iterator[LLM]:
    """A model that drafts nothing."""
    with LLM("pocket", **OPTIONS, speculative_config=False) as llm:
        yield llm


def test_a_job_with_an_earlier_one_has_its_drafts_and_the_bytes_of_a_job_without(plain, tmp_path):
    source, last, edited, new = (tmp_path / f"{name}.jsonl" for name in ("in", "last", "edited", "new"))
    write_lines(source, set())
    plain.batch(source, last, PARAMS, use_tqdm=False)
    write_lines(source, {3, 8})
    plain.batch(source, new, PARAMS, use_tqdm=False)
    with LLM("pocket", **OPTIONS, speculative_config={"method": "replay", "file": last}) as llm:
        llm.batch(source, edited, PARAMS, use_tqdm=False)  # with the model's own
        stats, state = llm.stats(), JobFiles.of(edited).state()
        # Of 18 samples with 40 tokens, 15 are asked as before. Without the earlier run, 274 are accepted.
        assert stats.accepted_tokens > 500 and 0.7 < stats.acceptance < 1
        assert (state.num_draft_tokens, state.num_accepted_tokens) == (stats.draft_tokens, stats.accepted_tokens)
        assert "% accepted)" in ledger(state)
    assert edited.read_bytes() == new.read_bytes() != last.read_bytes()


def test_calls_find_their_prompts_answers_in_the_lines_that_outputs_were_written_to(plain, tmp_path):
    texts, talks = [f"Count from {number}:" for number in range(4)], [question(number) for number in range(4)]
    first = [*plain.generate(texts, PARAMS, use_tqdm=False), *plain.chat(talks, PARAMS, use_tqdm=False)]
    last = tmp_path / "last.jsonl"
    last.write_text("".join(output.to_json() + "\n" for output in first))
    with LLM("pocket", **OPTIONS, speculative_config={"method": "replay", "file": last}) as llm:
        *_, streamed = llm.stream(talks[1], PARAMS)  # first: answers that are finished are drafts, too
        again = [*llm.generate(texts, PARAMS, use_tqdm=False), *llm.chat(talks, PARAMS, use_tqdm=False)]
        assert told(again) == told(first) and min(accepted([streamed, *again])) > 30
        assert llm.generate("Something else", PARAMS, use_tqdm=False)[0].error_code == 200


def test_a_run_of_another_vocabulary_is_refused_before_anything_is_computed(tmp_path):
    last = tmp_path / "last.jsonl"
    last.write_text('{"prompt": "a", "outputs": [{"token_ids": [999999]}]}\n')
    with pytest.raises(ConfigError, match="has an answer with token id 999999"):
        LLM("pocket", load_format="stand-in", **OPTIONS, speculative_config={"method": "replay", "file": last})
