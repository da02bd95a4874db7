"""A request collects its deltas into results, merged as long as nobody has read them."""

import asyncio
from array import array
from concurrent.futures import Future
from unittest import mock

import pytest
from builders.cases import for_each

from penstock.frontend.http.loaded_model import LoadedModel
from penstock.frontend.requests.budget import Budget, BudgetError
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.session.private import PrivateSession
from penstock.frontend.session.session import Stream
from penstock.protocol.errors import EngineDeadError
from penstock.protocol.messages import Delta, Logprobs, Prompt, Timing, sequence_id
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column


def pending(n: int = 1, notify=lambda request: None) -> PendingRequest:
    prompt = Prompt(7, column([1, 2, 3]), SamplingParams(n=n), 0, 100.0)
    return PendingRequest(prompt, "one", notify, spelled)


def delta(text: str, ids: list[int], sample: int = 0, **fields) -> Delta:
    return Delta(sequence_id(7, sample), text, column(ids), num_cached=0, **fields)


def spelled(token: int) -> str:
    return f"<{token}>"


def test_a_request_is_finished_when_its_last_sample_is_or_with_its_refusal():
    request = pending()
    request.refuse(400, "too long")
    output = request.take()
    assert (output.error_code, output.error_msg, output.outputs.finish_reason) == (400, "too long", "error")
    assert output.finished and not request.is_fresh
    request = pending(n=2)
    request.add(delta("x", [1], sample=1, finish_reason="stop", stop_reason=1))
    assert not request.is_finished
    request.add(delta("y", [2], sample=0, finish_reason="length"))
    output = request.take()
    assert output.finished
    assert [(answer.text, answer.finish_reason) for answer in output.outputs] == [("y", "length"), ("x", "stop")]


def test_times_become_durations_from_arrival():
    request = pending()
    timing = Timing(100.0, 101.0, 103.0, 110.0, forward_time=4.5, preemptions=1)
    request.add(delta("x", [1, 2], finish_reason="length", timing=timing))
    metrics = request.take().metrics
    assert (metrics.arrival_time, metrics.inference_start_time) == (100.0, 101.0)
    assert (metrics.time_in_queue, metrics.first_token_time, metrics.model_execute_time) == (1.0, 3.0, 9.0)
    assert (metrics.model_forward_time, metrics.preemptions) == (4.5, 1)
    assert (metrics.num_prompt_tokens, metrics.num_output_tokens) == (3, 2)


def test_drafts_of_all_samples_are_counted():
    request = pending(n=2)
    for sample, (drafted, accepted) in enumerate([(5, 3), (2, 0)]):
        timing = Timing(100.0, 101.0, 103.0, 110.0, 4.5, 0, drafted, accepted)
        request.add(delta("x", [1], sample=sample, finish_reason="length", timing=timing))
    metrics = request.take().metrics
    assert (metrics.num_draft_tokens, metrics.num_accepted_tokens) == (7, 3)


def test_logprobs_are_spelled_and_the_chosen_token_stands_once():
    request = pending()
    packed = array("f", [-0.5, -0.5, -2.0, -3.0, -0.25, -1.0]).tobytes()
    part = Logprobs(sequence_id(7, 0), False, 3, column([4, 4, 9, 8, 4, 9]), packed, column([1, 3]))
    request.add(delta("", [4, 8], finish_reason="length", logprobs=[part]))
    answer = request.take().outputs[0]
    ranked = {token: (entry.rank, entry.decoded_token) for token, entry in answer.logprobs[0].items()}
    assert ranked == {4: (1, "<4>"), 9: (2, "<9>")}
    assert answer.logprobs[1][8].rank == 3
    assert answer.cumulative_logprob == -3.5


def many_logprobs(positions: int, width: int = 21) -> Logprobs:
    count = positions * width
    logprobs = array("f", [-1.0] * count).tobytes()
    return Logprobs(7, False, width, column(range(count)), logprobs, column([1] * positions))


def test_what_comes_is_charged_as_it_is_packed_and_told_with_what_is_taken():
    budget = Budget(total=1 << 20, per_client=1 << 20)
    request = pending()
    request.charge = budget.charge("someone")
    request.add(delta("text", [4, 5], logprobs=[many_logprobs(100)]))
    assert 8 * 2100 < budget.used < 10 * 2100
    first = request.take_packed()
    kept = 4 * 2  # the ids, which the request would go on from
    assert first.num_bytes == budget.used - kept and first.output.outputs.logprobs is None
    assert [len(part.ranks) // 4 for part in first.logprobs] == [100]
    request.add(delta("more", [6]))
    assert request.take_packed().num_bytes == budget.used - first.num_bytes - kept - 4 > 0


def test_a_request_that_takes_too_much_or_has_given_back_its_charge_fails_and_lets_go_of_all_that_it_had():
    budget = Budget(total=1 << 20, per_client=40_000)
    request = pending()
    request.charge = budget.charge("someone")
    request.add(delta("a", [4], logprobs=[many_logprobs(100)]))
    request.add(delta("b", [5], logprobs=[many_logprobs(200)]))
    assert isinstance(request.error, BudgetError)
    request.add(delta("c", [6], finish_reason="stop"))
    assert not request.output.outputs.text and not request._logprobs and not request.is_finished
    released, before = pending(), budget.used
    released.charge = budget.charge("another", 100)
    released.charge.release()
    released.add(delta("a", [4]))
    assert budget.used == before and isinstance(released.error, BudgetError)


def last_words(request: PendingRequest) -> None:
    """Text, and the end of its tree before anybody has looked."""
    request.add(Delta(sequence_id(7, 0), "last words", column([4]), num_cached=0))
    request.tell()
    request.error = EngineDeadError("worker 0 died")
    request.tell()


@for_each("is_streamed", [True, False])
def test_a_stream_and_an_answer_over_http_give_the_text_and_then_the_error(is_streamed):
    request = pending()
    stream = Stream(None, request)
    assert stream.poll() is None
    last_words(request)
    assert stream.poll().outputs.text == "last words"
    with pytest.raises(EngineDeadError, match="worker 0 died"):
        stream.poll()
    assert not stream.is_over

    made: list[PendingRequest] = []

    def admit(asked, notify, *, is_streamed):
        made.append(pending(notify=notify))
        return made

    async def run(work, client):
        return work()

    session = object.__new__(PrivateSession)
    session.door = mock.Mock(parse=lambda prompts, params: prompts, of=lambda client: mock.Mock(admit=admit))
    session.transport = mock.Mock(submit=lambda requests: last_words(*requests), ask_stats=lambda ids: Future())
    session.threads = mock.Mock(texts=mock.Mock(run=run))
    model = LoadedModel(session, "model")

    async def read() -> list[str]:
        texts = []
        charge = Budget(1 << 20, 1 << 20).charge("someone")
        answer = model.stream({}, SamplingParams(), charge, is_streamed=is_streamed, on_submit=lambda submitted: None)
        with pytest.raises(EngineDeadError, match="worker 0 died"):
            async for news in answer:
                texts.append(news.output.outputs.text)
        return texts

    assert asyncio.run(asyncio.wait_for(read(), 60)) == ["last words"]
