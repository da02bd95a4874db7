"""Requests outlive their tree: whatever dies when, answers are those that they would have been.

Real transports over a stand-in for their tree, which dies when a test wants, and is driven by hand.
"""

import random
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.daemon.survivors import Survivors
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.session.tree.transport import TreeTransport
from penstock.protocol.errors import EngineDeadError
from penstock.protocol.messages import (
    Abort,
    Delta,
    Deltas,
    Generate,
    Logprobs,
    Prompt,
    Started,
    column,
    sequence_id,
    values,
)
from penstock.protocol.parameters.sampling import SamplingParams

SLOTS = 3


class Sample:
    """A sample in a tree: all that it will say follows from its id."""

    def __init__(self, prompt: Prompt, sample: int) -> None:
        self.prompt, self.id = prompt, sequence_id(prompt.request_id, sample)
        chosen = random.Random(self.id)
        self.tokens = [chosen.randrange(1000) for _ in range(chosen.randrange(1, 12))]
        said = prompt.said[sample].token_ids if sample < len(prompt.said) else b""
        assert list(values(said)) == self.tokens[: len(said) // 4]
        self.num_sent, self.num_computed = 0, len(said) // 4
        self.first_logprob = self.num_computed
        self.has_prompt_logprobs = sample == 0 and prompt.params.prompt_logprobs is not None

    def step(self) -> Iterator[Delta]:
        self.num_computed += 1
        is_end = self.num_computed >= len(self.tokens)
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
    """A transport whose tree is a dict of samples, the first of which are computed."""

    def __init__(self) -> None:
        super(TreeTransport, self).__init__()
        self.heir = None
        self.samples: dict[int, Sample] = {}
        self.submitted: list[int] = []
        self.tree: Any = SimpleNamespace(engine=self, close=lambda ask: None)
        self._watchdog: Any = SimpleNamespace(wake=lambda: None)
        self._stats = {}
        self.on_death = lambda error: None

    def send(self, message: Generate | Abort) -> None:
        if isinstance(message, Abort):
            for sequence in message.sequence_ids:
                if self.samples.pop(sequence, None) is not None:
                    self._dispatch(Deltas([Delta(sequence, "", b"", 0, "abort", error_code=499)]))
            return
        for prompt in message.prompts:
            self.submitted.append(prompt.request_id)
            new = [Sample(prompt, sample) for sample in range(prompt.params.n)]
            self.samples.update((sample.id, sample) for sample in new)

    def step(self) -> None:
        running = list(self.samples.values())[:SLOTS]
        self._dispatch(Started(sorted({sample.prompt.request_id for sample in running})))
        deltas = [delta for sample in running for delta in sample.step()]
        for delta in deltas:
            if delta.finish_reason is not None:
                del self.samples[delta.sequence_id]
        self._dispatch(Deltas(deltas))

    def die(self) -> set[int]:
        """Returns the requests that it was computing."""
        found = {number for number, request in self._pending.items() if request.has_started or request.num_generated}
        self._die(EngineDeadError("worker 0 was killed"))
        return found


def session_of(tree: HandDrivenTree) -> Any:
    return SimpleNamespace(transport=tree, door=SimpleNamespace(), stamps=frozenset())


class Client:
    """Reads one request."""

    def __init__(self, number: int, is_streamed: bool, **params: Any) -> None:
        prompt = Prompt(number, column([1, 2, 3]), SamplingParams(**params), 0, 0.0, is_streamed)
        self.request = PendingRequest(prompt, None, lambda request: None, str)
        self.answers = [([], [], "") for _ in range(prompt.params.n)]
        self.prompt_logprobs: list[Any] = []
        self.notices: list[str] = []
        self.transport: TreeTransport | None = None

    def submit(self, tree: TreeTransport) -> "Client":
        self.transport = tree
        tree.submit([self.request])
        return self

    def read(self) -> None:
        while self.request.is_fresh:
            output = self.request.take()
            self.notices += [output.notice] if output.notice else []
            self.prompt_logprobs += (output.prompt_logprobs or [None])[1:]
            for answer, (tokens, logprobs, text) in zip(output.outputs, self.answers):
                tokens += answer.token_ids
                logprobs += [next(iter(each)) for each in answer.logprobs or []]
                self.answers[answer.index] = (tokens, logprobs, text + answer.text)

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
    {},
    {"n": 3},
    {"logprobs": 0},
    {"n": 2, "logprobs": 0, "prompt_logprobs": 0},
    {"logprobs": 0, "early_stop": {"window_size": 5}},
    {"continue_on_restart": False},
)


@given(st.data())
def test_whatever_dies_when_each_answer_is_whole_or_fails_for_the_reason_that_it_must(data):
    survivors, tree, numbers = Survivors(), HandDrivenTree(), iter(range(100))
    survivors.go_on(session_of(tree))
    clients: dict[int, Client] = {}
    deaths: dict[int, int] = {}
    failing: set[int] = set()
    left: set[int] = set()
    for _ in range(data.draw(st.integers(1, 25))):
        is_dead = tree.error is not None
        match data.draw(st.sampled_from(("ask", "ask", "step", "step", "read", "die", "leave", "cancel", "start"))):
            case "ask":
                number = next(numbers)
                client = Client(number, data.draw(st.booleans()), **data.draw(st.sampled_from(KINDS)))
                clients[number] = client.submit(tree)
            case "step" if not is_dead:
                tree.step()
            case "read" if clients:
                data.draw(st.sampled_from(list(clients.values()))).read()
            case "die" if not is_dead:
                pending = list(tree._pending)
                for number in tree.die():
                    deaths[number] = deaths.get(number, 0) + 1
                failing |= {each for each in pending if deaths.get(each, 0) > 1}
                failing |= {each for each in pending if not clients[each].request.prompt.params.continue_on_restart}
            case "start" if is_dead:
                tree = HandDrivenTree()
                survivors.go_on(session_of(tree))
                assert tree.submitted == sorted(tree.submitted)
            case "leave" | "cancel" as way if clients:
                client = data.draw(st.sampled_from(list(clients.values())))
                is_running = not client.request.is_finished and client.request.error is None
                if is_running and client.request.request_id not in left:
                    left.add(client.request.request_id)
                    (client.transport.abort if way == "leave" else client.transport.cancel)([client.request])
                    if way == "cancel":
                        assert client.request.is_finished and client.request.output.error_code == 499
    if tree.error is not None:
        tree = HandDrivenTree()
        survivors.go_on(session_of(tree))
    while tree.samples:
        tree.step()
    assert len(survivors) == 0 and not tree._pending
    for number, client in clients.items():
        client.read()
        if number in failing:
            assert isinstance(client.request.error, EngineDeadError)
        elif number not in left:
            client.check()
            assert len(client.notices) == deaths.get(number, 0)
