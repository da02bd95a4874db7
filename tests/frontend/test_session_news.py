"""An error that ends a request from without takes nothing from what has come before it, whoever reads."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from penstock.frontend.http.loaded_model import LoadedModel
from penstock.frontend.requests.budget import Budget
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.session.private import PrivateSession
from penstock.frontend.session.session import Stream
from penstock.protocol.errors import EngineDeadError
from penstock.protocol.messages import Delta, Prompt, column, sequence_id
from penstock.protocol.parameters.sampling import SamplingParams


def pending(notify=lambda request: None) -> PendingRequest:
    return PendingRequest(Prompt(7, column([1, 2, 3]), SamplingParams(), 0, 100.0), "one", notify, str)


def last_words(request: PendingRequest) -> None:
    """Text, and the end of its tree before anybody has looked."""
    request.add(Delta(sequence_id(7, 0), "last words", column([4]), num_cached=0))
    request.tell()
    request.error = EngineDeadError("worker 0 died")
    request.tell()


def session(**parts) -> PrivateSession:
    made = object.__new__(PrivateSession)
    made.__dict__.update(parts)
    return made


def test_a_stream_gives_the_text_and_then_the_error():
    request = pending()
    stream = Stream(None, request)
    assert stream.poll() is None
    last_words(request)
    assert stream.poll().outputs.text == "last words"
    with pytest.raises(EngineDeadError, match="worker 0 died"):
        stream.poll()
    assert not stream.is_over


@pytest.mark.parametrize("is_streamed", [True, False])
def test_over_http_too_where_both_are_told_at_once(is_streamed):
    made: list[PendingRequest] = []

    def admit(asked, notify, *, is_streamed):
        made.append(pending(notify))
        return made

    async def run(work, client):
        return work()

    door = SimpleNamespace(parse=lambda prompts, params: prompts, of=lambda client: SimpleNamespace(admit=admit))
    transport = SimpleNamespace(
        submit=lambda requests: last_words(*requests), abort=lambda requests: None, ask_stats=lambda ids: Future()
    )
    threads = SimpleNamespace(texts=SimpleNamespace(run=run))
    model = LoadedModel(session(door=door, transport=transport, threads=threads), "model")

    async def read() -> list[str]:
        texts = []
        charge = Budget(1 << 20, 1 << 20).charge("someone")
        answer = model.stream({}, SamplingParams(), charge, is_streamed=is_streamed, on_submit=lambda submitted: None)
        with pytest.raises(EngineDeadError, match="worker 0 died"):
            async for news in answer:
                texts.append(news.output.outputs.text)
        return texts

    assert asyncio.run(asyncio.wait_for(read(), 10)) == ["last words"]
