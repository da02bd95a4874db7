"""The engine's counters since its start, and its statistics."""

from bisect import bisect_left
from dataclasses import field

from ..protocol.stats import STEP_TOKENS, Stats
from ..records import dataclass
from .media.encoder import Encoder
from .memory.cache import Cache


@dataclass(slots=True)
class Counters:
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    drafts: int = 0  # rows that had draft tokens
    draft_tokens: int = 0
    accepted_tokens: int = 0  # drafts that were the tokens drawn
    accepted_by_position: list[int] = field(default_factory=list)
    step_tokens: int = 0  # tokens of all steps
    steps_by_tokens: list[int] = field(default_factory=lambda: [0] * (len(STEP_TOKENS) + 1))
    step_seconds: float = 0.0  # the workers' forward time
    forward_time: float = 0.0  # of the last step

    def note_step(self, num_tokens: int) -> None:
        self.steps += 1
        self.step_tokens += num_tokens
        self.steps_by_tokens[bisect_left(STEP_TOKENS, num_tokens)] += 1

    def note_accepted(self, count: int) -> None:
        """Count the draft tokens of one row that were the tokens drawn."""
        self.accepted_tokens += count
        by_position = self.accepted_by_position
        by_position.extend([0] * (count - len(by_position)))
        for position in range(count):
            by_position[position] += 1

    def stats(self, num_running: int, num_waiting: int, cache: Cache, encoder: Encoder) -> Stats:
        longest, row_bytes = cache.groups[0].pool, encoder.plan.row_bytes
        return Stats(
            running=num_running,
            waiting=num_waiting,
            blocks=longest.num_blocks,
            free_blocks=longest.num_free,
            steps=self.steps,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            generated_tokens=self.generated_tokens,
            preemptions=self.preemptions,
            step_seconds=self.step_seconds,
            saved_blocks=cache.num_saved,
            loaded_blocks=cache.num_loaded,
            stored_blocks=0 if cache.disk is None else cache.disk.stores.num_stored,
            fetched_blocks=0 if cache.disk is None else cache.disk.fetches.num_fetched,
            encoded_media=encoder.num_encoded,
            kept_media=0 if encoder.kept is None else encoder.kept.num_kept,
            fetched_media=0 if encoder.kept is None else encoder.kept.num_fetched,
            drafts=self.drafts,
            draft_tokens=self.draft_tokens,
            accepted_tokens=self.accepted_tokens,
            accepted_by_position=list(self.accepted_by_position),
            step_tokens=self.step_tokens,
            steps_by_tokens=list(self.steps_by_tokens),
            kv_bytes=sum(group.pool.num_blocks * group.plan.block_bytes for group in cache.groups),
            media_bytes=encoder.plan.num_rows * row_bytes,
            used_media_bytes=encoder.entries.num_taken * row_bytes,
            free_kv_bytes=sum(group.pool.num_free * group.plan.block_bytes for group in cache.groups),
            block_size=cache.block_size,
            shares_prefixes=cache.shares_prefixes,
        )
