"""Looks at proposers of drafts: a sequence that enters slot 0, and the guess about it."""

from collections.abc import Sequence

import numpy

from penstock.protocol.messages import NewSlot, SamplingParams
from penstock.worker.drafting.proposer import Guess, Look, Proposer

PROMPT = [7, 8, 9]


def array(tokens) -> numpy.ndarray:
    return numpy.array(tokens, numpy.int32)


def entering(prompt: Sequence[int], expected: Sequence[int] = (), store: bytes = b"") -> NewSlot:
    expects = array(expected).tobytes()
    params = SamplingParams()
    return NewSlot(0, array(prompt).tobytes(), len(prompt), 0, params, 7, 0, store=store, expected=expects)


def guess(proposer: Proposer, tokens, most: int = 8) -> Guess:
    [found] = proposer.guess([Look(0, array(tokens), most)])
    return found


def finished(proposer: Proposer, answer: list[int], store: bytes, prompt: Sequence[int] = PROMPT) -> None:
    proposer.enter(0, entering(prompt, store=store))
    proposer.leave(0, array([*prompt, *answer]))
