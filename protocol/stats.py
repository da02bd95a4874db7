"""Reports of a tree's processes: the progress of a start, and an engine's statistics on request."""

from .wire import Message

# The largest numbers of tokens in the groups in which steps are counted.
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class StartProgress(Message):
    """A child → front end: the progress of its start."""

    what: str
    done: int
    total: int


class StatsQuery(Message):
    """Front end → engine: a request for statistics."""

    query: int = 0
    sequence_ids: list[int] = []  # whose generated tokens to report


class Stats(Message):
    """Engine → front end: the answer to a `StatsQuery`."""

    running: int
    waiting: int
    blocks: int  # of the group of layers that holds the longest contexts
    free_blocks: int
    steps: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    preemptions: int
    step_seconds: float = 0.0  # spent in the workers' steps
    saved_blocks: int = 0  # to CPU memory
    loaded_blocks: int = 0  # from CPU memory, instead of computing them again
    stored_blocks: int = 0  # on disk
    fetched_blocks: int = 0  # from disk, instead of computing them again
    encoded_media: int = 0  # pictures and videos
    kept_media: int = 0  # whose rows are on disk
    fetched_media: int = 0  # from disk, instead of encoding them again
    drafts: int = 0  # rows of steps that had draft tokens
    draft_tokens: int = 0
    accepted_tokens: int = 0  # drafts that were the tokens drawn
    accepted_by_position: list[int] = []  # the same, of a row's first draft token, second, and so on
    step_tokens: int = 0  # tokens of all steps
    steps_by_tokens: list[int] = []  # how many steps had at most so many tokens (STEP_TOKENS), and the larger ones
    query: int = 0  # the query that this answers
    generated: list[int] = []  # tokens of the sequences asked for; 0 for unknown ones
    kv_bytes: int = 0  # of keys, values and states of all groups of layers, on each rank
    free_kv_bytes: int = 0
    media_bytes: int = 0  # of rows of pictures and videos that are kept (mm_cache), on each rank
    used_media_bytes: int = 0
    block_size: int = 0  # tokens
    shares_prefixes: bool = True
    num_slots: int = 0  # sequences that a step can have
    max_loras: int = 0  # adapters that fit in memory
    running_loras: list[str] = []  # names of the adapters of running sequences
    waiting_loras: list[str] = []
    replicas: "list[Stats]" = []  # of each tree, if there are several; the figures above are then their sums

    @property
    def used_kv_bytes(self) -> int:
        return self.kv_bytes - self.free_kv_bytes

    @property
    def acceptance(self) -> float:
        """The share of drafts that were the tokens sampled."""
        return self.accepted_tokens / max(self.draft_tokens, 1)

    @property
    def kv_usage(self) -> float:
        """The share of this memory that sequences hold."""
        return self.used_kv_bytes / max(self.kv_bytes, 1)

    @property
    def media_usage(self) -> float:
        """The share of the memory for pictures and videos that is in use; when it is full, the oldest are dropped."""
        return self.used_media_bytes / max(self.media_bytes, 1)
