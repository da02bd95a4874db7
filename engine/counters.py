"""What the engine counts since its start."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    step_seconds: float = 0.0  # the workers' forward time
    forward_time: float = 0.0  # of the last step
