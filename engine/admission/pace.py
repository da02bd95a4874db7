"""How many tokens of long prompts a step computes while answers are streamed.

Somebody reads a stream while it is written, so a step should not take more than twice as long as it would without
prompts. Long prompts get as many tokens as fit into that time, judged by what their tokens took in earlier steps; now
and then they get none, to measure a step without them. Short prompts are computed at once, and so are long ones when
nobody is reading.
"""

from ..step import ScheduledStep

_RATIO = 1.75  # of a step with long prompts to one without; under 2, because steps vary
# Tokens. Fewer than 8 take as long as 8: attention reads the whole context for them, and computes 16 rows at a time.
_LEAST, _FIRST = 8, 16
_MEASURE_EVERY = 16  # steps
_NEW_SHARE = 0.5  # of the newest measurement in an average


class Pace:
    def __init__(self) -> None:
        self._seconds_without: float | None = None  # of a step without long prompts
        self._seconds_a_token: float | None = None
        self._measured_at = -_MEASURE_EVERY
        self._last = 0  # tokens of the last step that had any

    def allowance(self, step: ScheduledStep) -> int:
        """How many tokens of long prompts the step may take beside its streamed answers."""
        step.is_paced = True
        if self._seconds_without is None or step.number - self._measured_at >= _MEASURE_EVERY:
            self._measured_at = step.number
            return 0
        if self._seconds_a_token is None:
            return _FIRST
        fitting = (_RATIO - 1) * self._seconds_without / max(self._seconds_a_token, 1e-9)
        return max(_LEAST, int(min(fitting, 2 * self._last)) // _LEAST * _LEAST)

    def learn(self, step: ScheduledStep, seconds: float) -> None:
        """Take in how long a paced step took."""
        long, short = step.prompt_tokens()
        if short:
            return
        if not long:
            self._seconds_without = _averaged(self._seconds_without, seconds)
        elif self._seconds_without is not None:
            self._last = long
            self._seconds_a_token = _averaged(self._seconds_a_token, max(0.0, seconds - self._seconds_without) / long)


def _averaged(so_far: float | None, newest: float) -> float:
    return newest if so_far is None else so_far + _NEW_SHARE * (newest - so_far)
