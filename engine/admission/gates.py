"""The gates that a waiting sequence must pass to enter a step.

A gate is a small class with one question; each implements one option and is in the list only when that option is set.
"""

from dataclasses import field
from typing import Protocol

from ...records import dataclass
from ..memory.group_memory import Need
from ..request import Sequence
from ..step import Allowance
from .limits import Limits


@dataclass(slots=True)
class Demand:
    """The cost of admitting a sequence."""

    sequence: Sequence
    num_left: int  # tokens to compute
    needs: list[Need]  # of each group


@dataclass(slots=True)
class StepLoad:
    """The load so far of the step being planned."""

    num_running: int
    allowance: Allowance
    prompts: list[Sequence]  # running ones, whose next chunks are computed in this step
    num_prompts: int  # being computed: unfinished when the step began, or admitted to it
    num_long: int  # the long ones of these
    prompt_blocks: list[int]  # that these prompts hold, by group
    long: list[Sequence] = field(default_factory=list)  # running ones whose next chunks are layered

    def take(self, demand: Demand, num_tokens: int) -> None:
        self.num_running += 1
        self.allowance.spend(num_tokens)
        self.num_prompts += 1
        self.num_long += demand.sequence.is_long
        self.prompt_blocks = [
            held + need.num_blocks for held, need in zip(self.prompt_blocks, demand.needs, strict=True)
        ]


class Gate(Protocol):
    def admits(self, demand: Demand, load: StepLoad) -> bool: ...


@dataclass(frozen=True, slots=True)
class FreeBlocks:
    """Each group has enough free blocks for it, and a few more for every running sequence, so that none is soon
    preempted."""

    static_decode_blocks: int

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        reserve = self.static_decode_blocks * (load.num_running + 1) if load.num_running else 0
        return all(need.num_taken + min(reserve, need.most_growth) <= need.num_free for need in demand.needs)


@dataclass(frozen=True, slots=True)
class PromptShare:
    """Prompts being computed hold at most a share of each pool of blocks; a single one may hold more."""

    most_blocks: list[int]  # by attention group; groups of states come after these

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        shares = zip(self.most_blocks, load.prompt_blocks, demand.needs)
        return load.num_prompts == 0 or all(held + need.num_blocks <= most for most, held, need in shares)


@dataclass(frozen=True, slots=True)
class PartialPrefills:
    """At most this many prompts are computed at once."""

    most: int

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        return load.num_prompts < self.most


@dataclass(frozen=True, slots=True)
class WholePrompts:
    """A prompt is computed in one step; only a preempted history longer than a step is split."""

    max_num_batched_tokens: int

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        return demand.num_left <= load.allowance.left or demand.num_left > self.max_num_batched_tokens


@dataclass(frozen=True, slots=True)
class WholeTexts:
    """A text is computed in one step, which one that is longer than a step has for itself."""

    max_num_batched_tokens: int

    def admits(self, demand: Demand, load: StepLoad) -> bool:
        return demand.num_left <= load.allowance.left or load.allowance.left == self.max_num_batched_tokens


def gates(limits: Limits) -> list[Gate]:
    """The gates of the options that are set. Slots enforce max_num_seqs; lanes limit long prompts."""
    chosen: list[Gate] = [FreeBlocks(limits.static_decode_blocks)]
    if limits.kv_cache_ratio is not None:
        attention = [group for group in limits.groups if group.kind != "state"]
        chosen.append(PromptShare([int(limits.kv_cache_ratio * group.num_blocks) for group in attention]))
    if limits.max_num_partial_prefills is not None:
        chosen.append(PartialPrefills(limits.max_num_partial_prefills))
    if limits.has_whole_texts:
        chosen.append(WholeTexts(limits.max_num_batched_tokens))
    elif not limits.enable_chunked_prefill:
        chosen.append(WholePrompts(limits.max_num_batched_tokens))
    return chosen
