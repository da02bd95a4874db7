"""What an answer is expected to be, by an earlier run that is replayed or by a prediction: it reaches the worker as
drafts, a right one is accepted, and neither it nor a wrong one changes a bit.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.expecting import drafting_whatever_is_expected

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


# --- predictions ------------------------------------------------------------------------------------------------------

QUESTION = [{"role": "user", "content": "What can you do?"}]
SAMPLED = {"temperature": 0.8, "max_tokens": 40, "ignore_eos": True, "seed": 3, "logprobs": 2, "n": 2}


@pytest.fixture(scope="module")
def predicted(plain) -> RequestOutput:
    return asked(plain)


@pytest.fixture(scope="module")
def drafting(tmp_path_factory) -> Iterator[LLM]:
    """A model that drafts predictions, whether they pay or not, and nothing else."""
    method = drafting_whatever_is_expected(tmp_path_factory.mktemp("run"))
    method |= {"suffix_decoding_max_spec_factor": 0.01}
    with LLM("pocket", **OPTIONS, speculative_config=method) as llm:
        yield llm


def asked(llm: LLM, **params) -> RequestOutput:
    return llm.chat(QUESTION, SamplingParams(**SAMPLED | params), use_tqdm=False)[0]


def test_a_right_prediction_is_accepted_and_none_changes_an_answer(drafting, predicted):
    for text, accepted in (
        (None, range(5)),
        (predicted.outputs.text, range(40, 80)),  # of both samples, which are alike
        ("Nothing of this is ever said.", range(5)),
        ("5" * 400, range(5)),
    ):
        found = asked(drafting, prediction=text)
        assert found.outputs == predicted.outputs, text
        assert found.metrics.num_accepted_tokens in accepted, text
        assert text is None or found.metrics.num_draft_tokens >= 5, text  # a wrong one has been tried as well


def test_an_answer_that_a_stop_string_ends_has_its_counts_as_well(drafting, predicted):
    text, before = predicted.outputs.text, drafting.stats()
    found = asked(drafting, prediction=text, stop=[text[-9:]], n=1)
    assert found.outputs.finish_reason == "stop" and found.metrics.num_accepted_tokens > 10
    assert found.metrics.num_draft_tokens <= drafting.stats().draft_tokens - before.draft_tokens
