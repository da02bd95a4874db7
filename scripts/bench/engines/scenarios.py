"""The requests: random token ids, the same for every engine, new ones in every round.

New ones, because an engine that keeps the prefixes of earlier requests would else be asked for nothing.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .serve import Request

FIRST_ID = 10  # below lie ids that mean something


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    counts: str  # which tokens its rate counts: "prompt" or "output"
    make: Callable[["Prompts"], list[list[Request]]]  # waves: each wave's requests arrive together

    def waves(self, seed: int, vocabulary: int) -> list[list[Request]]:
        return self.make(Prompts(random.Random(f"{self.name} {seed}"), vocabulary))

    def tokens(self, waves: list[list[Request]]) -> int:
        requests = [request for wave in waves for request in wave]
        return sum(len(ids) if self.counts == "prompt" else count for ids, count in requests)


@dataclass(frozen=True)
class Prompts:
    """Random prompts out of one seed."""

    chance: random.Random
    vocabulary: int

    def ids(self, length: int) -> list[int]:
        return [self.chance.randrange(FIRST_ID, self.vocabulary) for _ in range(length)]

    def mixed(self, number: int) -> list[Request]:
        return [(self.ids(self.chance.randint(16, 256)), self.chance.randint(16, 128)) for _ in range(number)]

    def sharing(self, number: int) -> list[Request]:
        prefix = self.ids(512)
        return [(prefix + self.ids(16), 32) for _ in range(number)]


def _prefix_staged(prompts: Prompts) -> list[list[Request]]:
    first, *others = prompts.sharing(16)
    return [[first], others]


def _prefill(length: int) -> Scenario:
    return Scenario(f"prefill_{length}", f"prefill {length:,}", "prompt", lambda prompts: [[(prompts.ids(length), 1)]])


LONG = (4096, 8192, 16_384, 32_768, 65_536)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("decode", "decode, batch 1 (32 in, 128 out)", "output", lambda prompts: [[(prompts.ids(32), 128)]]),
        *map(_prefill, (512, 2048)),
        Scenario(
            "batch_16", "16 × (128 in, 64 out)", "output", lambda prompts: [[(prompts.ids(128), 64) for _ in range(16)]]
        ),
        Scenario(
            "batch_16_short", "16 × (128 in, 16 out)", "output",
            lambda prompts: [[(prompts.ids(128), 16) for _ in range(16)]],
        ),
        Scenario(
            "mixed_32", "32 mixed (16-256 in, 16-128 out)", "output",
            # The same lengths in every round: only the ids are new.
            lambda prompts: [
                [(prompts.ids(len(ids)), count) for ids, count in Prompts(random.Random(0), 1000).mixed(32)]
            ],
        ),
        Scenario(
            "prefix_16", "16 on a shared prefix of 512 (16 more in, 32 out), together", "output",
            lambda prompts: [prompts.sharing(16)],
        ),
        Scenario("prefix_staged", "the same, one first and 15 after it", "output", _prefix_staged),
        Scenario("long", "2,048 in, 64 out", "output", lambda prompts: [[(prompts.ids(2048), 64)]]),
        *map(_prefill, LONG),
    )
}  # fmt: skip
BESIDES = ("prefix_staged", "batch_16_short", *(f"prefill_{length}" for length in LONG))  # run if named
DEFAULT = tuple(name for name in SCENARIOS if name not in BESIDES)
MAX_NUM_SEQS = 32


def longest(scenarios: Iterable[Scenario]) -> int:
    """The tokens of a scenario's longest request, or of the warm-up's, and a block's room."""
    waves = [*warm_up(1000), *(wave for scenario in scenarios for wave in scenario.waves(0, 1000))]
    return max(len(ids) + count for wave in waves for ids, count in wave) + 64


def first_token(seed: int, vocabulary: int) -> list[Request]:
    """32 tokens in, one out: what a decode of 128 has before its steps, and the first request of a fresh process."""
    return [(Prompts(random.Random(f"first {seed}"), vocabulary).ids(32), 1)]


def warm_up(vocabulary: int) -> list[list[Request]]:
    """Touches what an engine makes at its first request: buffers, code for batches and for long prompts."""
    prompts = Prompts(random.Random("warm-up"), vocabulary)
    return [[(prompts.ids(600), 4)], [(prompts.ids(48), 8) for _ in range(16)]]
