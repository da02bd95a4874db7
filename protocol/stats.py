"""The question how an engine is doing, and its answer: what runs and waits, blocks in use, counts since its start."""

from .wire import Message


class StatsQuery(Message):
    """Front end → engine."""

    query: int = 0
    sequence_ids: list[int] = []  # whose tokens are to be counted


class Stats(Message):
    """Engine → front end."""

    running: int
    waiting: int
    blocks: int
    free_blocks: int
    steps: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    preemptions: int
    step_seconds: float = 0.0  # spent in the workers' steps
    saved_blocks: int = 0  # to CPU memory
    loaded_blocks: int = 0  # from there, instead of computing them again
    query: int = 0  # that this answers
    generated: list[int] = []  # tokens of the sequences that it asked for; 0 for those that are not here
