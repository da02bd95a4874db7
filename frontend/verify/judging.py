"""Judges bodies by their receipts: has each answer drawn again from its own tokens, and compares.

The claimed tokens go to the model with the request. It computes them like a prompt, and the answer ends with the first
token that isn't the claimed one. An answer that is whole is compared with the body's text, reasons, counts and
log-probabilities.
"""

import os
import queue
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.outputs import RequestOutput
from ..receipts.numbers import NumbersReceipt
from ..receipts.receipt import VERSIONS, ClaimedPrompt, Receipt
from ..requests.request import Request
from ..session.session import Session
from .bodies import Answered, difference
from .lines import OUTPUTS, ClaimedBody, from_file, from_outputs, given_prompts, opened
from .numbers import NumbersJudge
from .repeated import foreign_parameter, foreign_question, is_rendered
from .verdict import Verdict

# The places of a sample and of a token in a path to one of their figures.
_SAMPLE = re.compile(r"^(?:choices|outputs)\[(\d+)\]")
_TOKEN = re.compile(r"(?:logprobs(?:\.[a-z_]+)?|token_ids)\[(\d+)\]")


Source = str | os.PathLike[str]


def judged(session: Session[Any], answers: Any, source: Source | None = None) -> Iterator[Verdict]:
    """Verdicts on outputs, or on the lines of a file, in their order. `source` is the file that was answered, which has
    the prompts' media."""
    session.transport.check()
    is_file = isinstance(answers, str | os.PathLike)
    if source is not None and not (is_file and isinstance(source, str | os.PathLike)):
        raise RequestError("input must be the path of the file that was answered, and goes with a path of answers.")
    if isinstance(answers, str | os.PathLike):
        prompts = seeing_prompts(session, answers, source) if source is not None else {}
        with opened(answers) as file:
            yield from verdicts(session, from_file(file, os.fspath(answers)), prompts)
        return
    several = [answers] if isinstance(answers, OUTPUTS) else answers
    if not isinstance(several, Iterable):
        raise RequestError(f"outputs must be RequestOutputs or a path, not {type(answers).__name__}.")
    yield from verdicts(session, from_outputs(several))


def seeing_prompts(session: Session[Any], answers: Source, source: Source) -> Mapping[str, Any]:
    """The prompts of a file that was answered, for those answers, looked through first, that need their media."""
    with opened(answers) as file:
        bodies = from_file(file, os.fspath(answers))
        names = {body.name for body in bodies if any(receipt.media for receipt in body.receipts)}
    return given_prompts(source, session, names)


def verdicts(
    session: Session[Any], bodies: Iterator[ClaimedBody], prompts: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Verdict]:
    """`prompts`: those with media, by the names of their bodies."""
    waiting: deque[ClaimedBody] = deque()
    done: queue.SimpleQueue[Request] = queue.SimpleQueue()

    numbers = NumbersJudge(session)

    def receipts() -> Iterator[Any]:
        for body in bodies:
            waiting.append(body)
            given = prompts.get(body.name)
            for receipt in body.receipts:
                if isinstance(receipt, NumbersReceipt):
                    yield from numbers.prompts(receipt)
                else:
                    yield ClaimedPrompt(given, receipt) if receipt.media and given is not None else receipt

    window = session.window(receipts(), None, done.put, ordered=True)
    outputs: list[Any] = []  # of the first body that waits
    try:
        while not window.is_over:
            window.fill()
            while not done.empty():
                window.finish(done.get())
            for _, output in window.ready():
                yield from _unjudged(waiting)
                outputs.append(output)
                if len(outputs) == waiting[0].num_prompts:
                    body = waiting.popleft()
                    if isinstance(receipt := body.receipts[0], NumbersReceipt):
                        yield numbers.verdict(body.name, body.body, receipt, outputs)
                    else:
                        yield _verdict(session, body, outputs)
                    outputs = []
            if window.running:
                window.finish(done.get())
    finally:
        window.abandon()
    yield from _unjudged(waiting)


def _unjudged(waiting: deque[ClaimedBody]) -> Iterator[Verdict]:
    while waiting and not waiting[0].receipts:
        body = waiting.popleft()
        yield Verdict("not judged", body.name, body.reason)


def _verdict(session: Session[Any], claimed: ClaimedBody, outputs: list[RequestOutput]) -> Verdict:
    for receipt, output in zip(claimed.of_texts, outputs, strict=True):
        if output.error_code != 200:
            return Verdict("not judged", claimed.name, output.error_msg)
        if (verdict := _of_tokens(session, claimed.name, receipt, output)) is not None:
            return verdict
    answered = Answered(outputs, claimed.of_texts, lambda: session.tokenizer)
    try:
        found = difference(claimed.body, answered)
    except ValueError:  # another number of prompts or samples than the form has
        return Verdict("differs", claimed.name, "its receipts are of another kind of answer")
    if found is None:
        return _of_request(session, claimed) or Verdict("proved", claimed.name)
    sample, place = _SAMPLE.search(found.path), _TOKEN.search(found.path)
    number, position = int(sample[1]) if sample else 0, int(place[1]) if place else None
    return Verdict("differs", claimed.name, found.path, number, position, found.had, found.expected)


def _of_request(session: Session[Any], claimed: ClaimedBody) -> Verdict | None:
    """What a body repeats of another request than its receipts have."""
    for receipt in claimed.of_texts:
        if (found := foreign_parameter(claimed.body, receipt)) is not None:
            reason = f"{found.path}: the receipt has another"
            return Verdict("differs", claimed.name, reason, had=found.had, draws=found.expected)
        if (foreign := foreign_question(claimed.body, receipt, session.tokenizer)) is not None:
            place, had = foreign
            if receipt.is_chat and not is_rendered(claimed.body, place, had, session.render):
                reason = f"{place}: the chat template changes or drops it, so the receipt can't show that it was asked"
                return Verdict("not judged", claimed.name, reason)
            return Verdict("differs", claimed.name, f"{place}: the receipt is of another question", had=had)
    return None


def _of_tokens(session: Session[Any], name: str, receipt: Receipt, output: RequestOutput) -> Verdict | None:
    """The first difference between the tokens of a receipt and those that are drawn."""
    decode = session.tokenizer.decode_token
    for sample, (claimed, answer) in enumerate(zip(receipt.samples, output.outputs, strict=True)):
        if (ids := claimed.ids) != answer.token_ids:
            pairs = enumerate(zip(ids, answer.token_ids))
            place = next((place for place, (had, draws) in pairs if had != draws), min(len(ids), len(answer.token_ids)))
            had, draws = (tokens[place] if place < len(tokens) else None for tokens in (ids, answer.token_ids))
            first, second = (None if token is None else decode(token) for token in (had, draws))
            return Verdict("differs", name, _other_version(session, receipt), sample, place, had, draws, first, second)
        if claimed.finish_reason != answer.finish_reason or claimed.stop_reason != answer.stop_reason:
            pair = claimed.finish_reason, answer.finish_reason
            return Verdict("differs", name, "the receipt's finish_reason", sample, None, *pair)
    return None


def _other_version(session: Session[Any], receipt: Receipt) -> str | None:
    """A remark if the answer was made by other kernels than these."""
    plan, made_by = session.plan, receipt.facts.get(VERSIONS[1])
    return None if plan is None or plan.kernels_digest == made_by else "it was made by another version of the kernels"
