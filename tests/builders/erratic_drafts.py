"""A drafter that knows the answers and is right by chance: it drafts a piece of what is expected, with mistakes."""

import random
from itertools import zip_longest

import numpy

from penstock.protocol.messages import NewSlot
from penstock.protocol.wire import values
from penstock.worker.drafting.drafting import Drafting
from penstock.worker.drafting.proposer import Look
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner


class ErraticDrafter:
    """Stands for `drafter.Drafter`."""

    def __init__(self, seed: int, vocab_size: int, wrong: int | None = None) -> None:
        """`wrong`: the token that every mistake is, if not any."""
        self._choice = random.Random(seed)
        self._wrong = range(vocab_size) if wrong is None else [wrong]
        self._expected: dict[int, tuple[int, list[int]]] = {}  # by slot, with the length of its prompt

    def enter(self, slot: int, new: NewSlot) -> None:
        self._expected[slot] = new.num_prompt, list(values(new.expected))

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        self._expected.pop(slot, None)

    def learn(self, num_rows: int, num_tokens: int, seconds: float) -> None: ...

    def take_turn(self, slot: int) -> bool:
        return True

    def drafts(self, looks: list[Look], num_rows: int) -> list[list[int]]:
        return [self._drafts(look) for look in looks]

    def _drafts(self, look: Look) -> list[int]:
        num_prompt, expected = self._expected[look.slot]
        start, count = len(look.tokens) - num_prompt, self._choice.randint(0, look.most)
        chance = [self._choice.choice(self._wrong) for _ in range(count)]
        right = expected[start : start + count]
        return [
            wrong if known is None or self._choice.random() < 0.15 else known
            for known, wrong in zip_longest(right, chance)
        ]


def draft_erratically(runner: Runner, seed: int, wrong: int | None = None) -> None:
    drafter = ErraticDrafter(seed, runner.table.vocab_size, wrong)
    runner.drafting = Drafting(runner.table, Parallel(), drafter, send=lambda drafts: None)  # type: ignore[arg-type]
