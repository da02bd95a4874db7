"""A scheduler whose steps take a given time, so that a test can follow how it shares them out."""

from collections.abc import Callable, Sequence

from builders.engine_harness import Harness, prompt
from msgspec.structs import replace

from penstock.protocol.messages import ChunkLayers, Prompt, sequence_id
from penstock.protocol.wire import values

BUDGET, LONG = 128, 490  # tokens of a step, and of a prompt
WITHOUT = 0.04  # seconds of a step without prompts

Seconds = Callable[[int, int], float]  # of a step, by its number and its tokens of prompts


def usual(step: int, tokens: int) -> float:
    return WITHOUT + 0.0015 * tokens


def streamed(request_id: int, length: int = 3, **params) -> Prompt:
    return replace(prompt(request_id, [7, 8, request_id] * (length // 3), max_tokens=1900, **params), is_streamed=True)


class Paced(Harness):
    """With steps that take `seconds`, two of them in flight."""

    def __init__(
        self,
        *prompts: Prompt,
        seconds: Seconds = usual,
        seconds_of_work: float = 0.0,
        seconds_of_layers: Callable[[ChunkLayers, int], float] = lambda layers, position: 0.0,
        **options,
    ) -> None:
        super().__init__(**{"max_num_batched_tokens": BUDGET, "num_blocks": 2048, "max_model_len": 2048, **options})
        self.seconds = seconds
        self.seconds_of_work = seconds_of_work  # of a patch in a layer of an encoder
        self.seconds_of_layers = seconds_of_layers  # of a chunk that begins at a position
        self.times: list[float] = []  # seconds of each step
        self.counts: list[int] = []  # tokens of prompts in each step
        self.works: list[int] = []  # patches x layers in each step
        self.add(*prompts)
        for _ in range(6 if prompts else 0):
            self.step()
        self.counts.clear()
        self.works.clear()
        self.times.clear()

    def step(self) -> None:
        while len(self.results) < 2 and (plan := self.plan()) is not None:
            planned = next(step for step in self.scheduler.in_flight if step.number == plan.step)
            self.counts.append(sum(values(plan.num_tokens)[planned.num_decodes :]))
            self.works.append(planned.encoder_work)
            seconds = self.seconds(len(self.counts), self.counts[-1]) + self.seconds_of_work * self.works[-1]
            for layers, sequence in zip(planned.layered, planned.layered_sequences, strict=True):
                is_done = layers.end_layer == self.limits.num_layers
                seconds += self.seconds_of_layers(layers, sequence.num_computed - layers.num_tokens * is_done)
            self.results[-1].forward_time = seconds
            self.times.append(seconds)
        self.finish()

    def has_begun(self, request_id: int) -> bool:
        return sequence_id(request_id, 0) in self.heard and bool(self.tokens(request_id))

    def run_until_begun(self, *request_ids: int) -> list[int]:
        while not all(self.has_begun(each) for each in request_ids):
            assert len(self.counts) < 1900, "a prompt makes no progress"
            self.step()
        return self.counts


def most_but_few(ratios: Sequence[float]) -> float:
    """The ratio that 95 of a hundred keep to."""
    return sorted(ratios)[-1 - len(ratios) // 20]
