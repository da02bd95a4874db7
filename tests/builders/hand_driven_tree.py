"""A tree that a test drives by hand, over a real transport: it dies when a test wants, and says what is known before.

Whatever a sample says follows from its id, so an answer can be checked however many trees have computed it.
"""

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Literal

from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.session.tree.transport import TreeTransport
from penstock.protocol.errors import EngineDeadError
from penstock.protocol.media import Medium
from penstock.protocol.messages import (
    Abort,
    Delta,
    Deltas,
    Generate,
    Logprobs,
    Prompt,
    Said,
    Started,
    request_and_sample,
    sequence_id,
)
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, values

SLOTS = 3


class Sample:
    """A sample in a tree: all that it will say follows from its id."""

    def __init__(self, prompt: Prompt, sample: int) -> None:
        self.prompt, self.id = prompt, sequence_id(prompt.request_id, sample)
        chosen = random.Random(self.id)
        self.tokens = [chosen.randrange(1000) for _ in range(chosen.randrange(1, 24))]
        said = prompt.said[sample].token_ids if sample < len(prompt.said) else b""
        assert list(values(said)) == self.tokens[: len(said) // 4]
        self.num_sent, self.num_computed = 0, len(said) // 4
        self.first_logprob = self.num_computed
        self.has_prompt_logprobs = sample == 0 and prompt.params.prompt_logprobs is not None

    @property
    def is_whole(self) -> bool:
        return self.num_computed >= len(self.tokens)

    def step(self) -> Iterator[Delta]:
        self.num_computed += 1
        is_end = self.is_whole
        if is_end or self.prompt.is_streamed or self.num_computed - self.num_sent >= self.prompt.delta_tokens > 0:
            new = self.tokens[self.num_sent : self.num_computed]
            parts = [self._part(True, [1, 2])] if self.has_prompt_logprobs else []
            if self.prompt.params.logprobs is not None:
                parts.append(self._part(False, self.tokens[max(self.num_sent, self.first_logprob) : self.num_computed]))
            self.num_sent, self.has_prompt_logprobs = self.num_computed, False
            text = "".join(map(chr, new))
            yield Delta(self.id, text, column(new), 0, "length" if is_end else None, logprobs=parts)

    def _part(self, is_prompt: bool, tokens: list[int]) -> Logprobs:
        return Logprobs(self.id, is_prompt, 1, column(tokens), array("f", tokens).tobytes(), column(tokens))


class HandDrivenTree(TreeTransport):
    """A transport whose tree is a dict of samples, the first of which are computed. Meanwhile others act."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super(TreeTransport, self).__init__()
        self.heir, self.edition = None, 0
        self.samples: dict[int, Sample] = {}
        self.aborted: set[int] = set()  # until the next step
        self.submitted: list[int] = []
        self.computed: set[int] = set()  # requests
        self.meanwhile = meanwhile
        self.tree: Any = SimpleNamespace(engine=self, close=lambda ask: meanwhile())
        self._watchdog: Any = SimpleNamespace(wake=lambda: None)
        self._stats = {}
        self.on_death = lambda error: None

    def send(self, message: Generate | Abort) -> None:
        self.meanwhile()
        if isinstance(message, Abort):
            self.aborted.update(message.sequence_ids)
            return
        for prompt in message.prompts:
            request = self._pending.get(prompt.request_id)
            assert request is None or request.source is None or prompt.media
            self.submitted.append(prompt.request_id)
            new = [Sample(prompt, sample) for sample in range(prompt.params.n)]
            self.samples.update((sample.id, sample) for sample in new)

    def step(self) -> None:
        found = [sequence for sequence in sorted(self.aborted) if self.samples.pop(sequence, None) is not None]
        self._dispatch(Deltas([Delta(each, "", b"", 0, "abort", error_code=499) for each in found]))
        self.aborted.clear()
        # What had said all before it came ends without a step.
        self._dispatch(Deltas([delta for each in self._whole() for delta in self.samples.pop(each).step()]))
        running = list(self.samples.values())[:SLOTS]
        self.computed.update(sample.prompt.request_id for sample in running)
        for number, sample in map(request_and_sample, (each.id for each in running)):
            assert number not in self._pending or not self._pending[number].progress[sample].has_ended
        self._dispatch(Started(sorted({sample.prompt.request_id for sample in running})))
        deltas = [delta for sample in running for delta in sample.step()]
        for delta in deltas:
            if delta.finish_reason is not None:
                del self.samples[delta.sequence_id]
        self._dispatch(Deltas(deltas))

    def _whole(self) -> list[int]:
        """The samples that have said all, and of whose end their request hasn't heard."""
        pending = ((each, self._pending.get(each.prompt.request_id)) for each in self.samples.values() if each.is_whole)
        return [
            each.id
            for each, request in pending
            if request is not None and not request.progress[request_and_sample(each.id)[1]].has_ended
        ]

    def check(self) -> None:
        super().check()
        self.meanwhile()

    def _forget(self, request_ids: Iterable[int]) -> list[PendingRequest]:
        found = super()._forget(list(request_ids))
        self.meanwhile()
        return found

    def die(self) -> None:
        self._die(EngineDeadError("worker 0 was killed"))


class Client:
    """Reads one request."""

    def __init__(self, number: int, is_streamed: bool, has_said: tuple[float, ...] = (), **params: Any) -> None:
        """`has_said` is how much of each sample was said before: a request of a job that goes on."""
        prompt = Prompt(number, column([1, 2, 3]), SamplingParams(**params), 0, 0.0, is_streamed)
        whole = [Sample(prompt, sample).tokens for sample in range(len(has_said))]
        prompt.said = [Said(column(each[: int(part * len(each))])) for each, part in zip(whole, has_said)]
        self.request = PendingRequest(prompt, None, lambda request: None, str)
        self.answers = [([], [], "") for _ in range(prompt.params.n)]
        self.prompt_logprobs: list[Any] = []
        self.notices: list[str] = []
        self.transport: Any = None
        self.end: Literal["", "cancel", "abort"] = ""  # that it has asked for
        self.has_left = False

    def submit(self, tree: Any) -> "Client":
        tree.submit([self.request])
        self.transport = tree
        return self

    def leave(self, end: Literal["cancel", "abort"]) -> None:
        assert self.transport is not None
        self.end = end
        (self.transport.cancel if end == "cancel" else self.transport.abort)([self.request])
        self.has_left = True

    def read(self) -> None:
        while self.request.is_fresh:
            output = self.request.take()
            self.notices += [output.notice] if output.notice else []
            self.prompt_logprobs += (output.prompt_logprobs or [None])[1:]
            for answer, (tokens, logprobs, text) in zip(output.outputs, self.answers):
                tokens += answer.token_ids
                logprobs += [next(iter(each)) for each in answer.logprobs or []]
                self.answers[answer.index] = (tokens, logprobs, text + answer.text)

    @property
    def is_running(self) -> bool:
        return not (self.request.is_finished or self.request.error or self.end)

    def check(self) -> None:
        """Whether it is finished with the answers that its samples always give."""
        request, params = self.request, self.request.prompt.params
        assert request.is_finished and request.error is None, (request.error, request.is_finished)
        for number, (tokens, logprobs, text) in enumerate(self.answers):
            whole = Sample(Prompt(request.request_id, b"", params, 0, 0.0), number).tokens
            assert (tokens, text) == (whole, "".join(map(chr, whole)))
            assert logprobs == (whole if params.logprobs is not None else [])
        assert len(self.prompt_logprobs) == (2 if params.prompt_logprobs is not None else 0)


KINDS: tuple[dict[str, Any], ...] = (
    {}, {"n": 3}, {"logprobs": 0}, {"n": 2, "logprobs": 0, "prompt_logprobs": 0},
    {"logprobs": 0, "early_stop": {"window_size": 5}}, {"continue_on_restart": False},
)  # fmt: skip
PICTURE = Medium("image", b"a picture", b"", (1, 1, 1), column([1, 1]), 1)


class Life:
    """Requests to trees that die, at random; what a tree is, and what must become of a request, is the test's own."""

    transport: Any  # to which requests are submitted

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.clients: list[Client] = []
        self.deaths: Counter[int] = Counter()  # of trees that had computed a token of the request
        self.decodings: list[tuple[Any, Future[Any]]] = []
        self.unreadable: set[int] = set()
        self.depth = 0

    def ask(self) -> None:
        kind, has_said = self.chosen.choice(KINDS), ()
        if "logprobs" not in kind and self.chosen.random() < 0.5:
            has_said = tuple(self.chosen.choice((0.0, 0.5, 1.0)) for _ in range(kind.get("n", 1)))
        client = Client(len(self.clients), self.chosen.random() < 0.5, has_said, **kind)
        if self.chosen.random() < 0.2:
            client.request.source, client.request.prompt.media = client.request, [PICTURE]
        self.clients.append(client)
        client.submit(self.transport)

    def read(self) -> None:
        if self.clients:
            self.chosen.choice(self.clients).read()

    def leave(self) -> None:
        if running := [client for client in self.clients if client.is_running and client.transport is not None]:
            self.chosen.choice(running).leave(self.chosen.choice(("cancel", "abort")))

    def decode_later(self, request: Any) -> "Future[Any]":
        self.decodings.append((request, Future()))
        return self.decodings[-1][1]

    def decode(self) -> None:
        if self.decodings:
            request, decoded = self.decodings.pop(self.chosen.randrange(len(self.decodings)))
            if self.chosen.random() < 0.1:
                self.unreadable.add(request.request_id)
                decoded.set_exception(OSError("no more processes"))
                return
            decoded.set_result(SimpleNamespace(placed=SimpleNamespace(media=[PICTURE], positions=b""), refusal=None))
