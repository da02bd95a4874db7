"""A beam search written once more and plainly: lists, no engine, no slots, every beam with its whole history.

Follows the published description of transformers' search (running beams, finished beams, three ways of stopping), so
that the engine's can be held against something that does not share a line with it.
"""

from collections.abc import Callable
from dataclasses import dataclass

Following = Callable[[list[int]], list[tuple[int, float]]]  # likely next tokens with their log-probabilities


@dataclass
class Found:
    tokens: list[int]
    total: float
    score: float
    reason: str


def beam_search(
    prompt: list[int],
    following: Following,
    *,
    width: int,
    max_tokens: int,
    ends: list[int],
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    temperature: float = 0.0,
) -> list[Found]:
    running: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[Found] = []
    for length in range(1, max_tokens + 1):
        options = [
            (answer + [token], total + logprob)
            for answer, total in running
            for token, logprob in following(prompt + answer)
        ]
        options.sort(key=lambda option: option[1], reverse=True)
        options = options[: max(2, 1 + len(ends)) * width]

        def score(total: float, divided_by: int) -> float:
            return total / (temperature or 1.0) / divided_by**length_penalty

        for answer, total in options[:width]:
            if answer[-1] in ends or length == max_tokens:
                reason = "stop" if answer[-1] in ends else "length"
                finished.append(Found(answer, total, score(total, length), reason))
        finished = sorted(finished, key=lambda found: found.score, reverse=True)[:width]
        if length == max_tokens:
            break
        running = [option for option in options if option[0][-1] not in ends][:width]
        if len(finished) == width:
            longest = max_tokens if early_stopping == "never" and length_penalty > 0 else length
            if early_stopping is True or score(running[0][1], longest) <= finished[-1].score:
                break
    return finished
