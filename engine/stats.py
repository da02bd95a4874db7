"""What the engine counts since its start, and the `Stats` made of it."""

from dataclasses import dataclass

from ..protocol.stats import Stats


@dataclass(slots=True)
class Counters:
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    step_seconds: float = 0.0  # the workers' forward time
    forward_time: float = 0.0  # of the last step

    def snapshot(
        self,
        *,
        running: int,
        waiting: int,
        blocks: int,
        free_blocks: int,
        saved_blocks: int,
        loaded_blocks: int,
    ) -> Stats:
        return Stats(
            running=running,
            waiting=waiting,
            blocks=blocks,
            free_blocks=free_blocks,
            steps=self.steps,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            generated_tokens=self.generated_tokens,
            preemptions=self.preemptions,
            step_seconds=self.step_seconds,
            saved_blocks=saved_blocks,
            loaded_blocks=loaded_blocks,
        )
