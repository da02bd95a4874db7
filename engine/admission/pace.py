"""Paces prompts: limits the prompt tokens of a step while answers are streamed.

Somebody reads a stream while it is written, so a step should not take more than twice as long as it would without
prompts. A prompt gets as many tokens as fit into that time, judged by earlier steps. Now and then, and when many
answers have ended, a step has no prompt tokens, to measure one without them. If more prompts wait, a step takes longer,
up to `_MOST_SHARES`: somebody also waits for each first token. All prompts have equal shares, so a short one need not
wait for the end of a long one. The encoding of a prompt's pictures counts against its share. A long context gets that
time, too, for layers of a larger chunk (`layers.py`).

About one step in a hundred may take longer, a pause that is hardly noticed: it computes new prompts whole. So a short
prompt that arrives alone is answered at once. If nobody reads a stream, or prompts may not be split, they get the whole
step.
"""

from collections import deque

from ..media.work import LEAST_WORK
from ..running import RunningBatch
from ..step import Allowance, ScheduledStep
from .followers import Followers
from .queue import WaitingQueue

_RATIO = 1.75  # duration of a step with one prompt / without; under 2, because steps vary
_LAYERS_RATIO = 1.9  # the same with layers of a chunk, whose work tells more about their time than tokens do
_MOST_SHARES = 6  # at most this many prompts lengthen a step; more divide the same time
_PAUSE = 0.25  # seconds
_PAUSE_EVERY = 128  # steps
# Tokens. Fewer than 8 take as long as 8: attention reads the whole context for them, and computes 16 rows at a time.
_LEAST = 8
_MANY = 64  # prompt tokens of a step from which their cost in bulk is measured
_MEASURE_EVERY = 16  # steps
_FEWER_ANSWERS = 0.5  # of those in the measured step; a step without prompts is shorter now
_TOO_SHORT = 0.8  # of a step without prompts, for one with them: the measurement is out of date, or was never right
_NEW_SHARE = 0.5  # weight of the newest measurement in an average
_LASTING = 0.9  # weight of a point of a line after each later one
_SPREAD = 0.01  # of points, relative to their mean, from which a line's slope is known
_LEAST_SLOPE = 0.25  # of a line, relative to one without a fixed part
_NO_TIME = 1e-9  # the least seconds of a token


class Line:
    """A straight line near the latest points: y = fixed + slope * x, both 0 or more."""

    def __init__(self) -> None:
        self.fixed = self.slope = 0.0
        self._sums = [0.0] * 5  # of 1, x, y, x * x and x * y, each point weighing less with every later one

    def add(self, x: float, y: float) -> None:
        self._sums = [_LASTING * each + new for each, new in zip(self._sums, (1, x, y, x * x, x * y), strict=True)]
        count, xs, ys, squares, products = self._sums
        spread = count * squares - xs * xs
        if spread > _SPREAD * xs * xs:  # otherwise the points say nothing new about the slope
            self.slope = (count * products - xs * ys) / spread
        # Points are rough: take neither more than all for what is fixed, nor nearly all.
        self.slope = min(max(self.slope, _LEAST_SLOPE * ys / xs), ys / xs)
        self.fixed = (ys - self.slope * xs) / count


class Pace:
    def __init__(
        self, running: RunningBatch, waiting: WaitingQueue, followers: Followers, in_flight: deque[ScheduledStep]
    ) -> None:
        self._running = running
        self._waiting = waiting
        self._followers = followers
        self._in_flight = in_flight
        self._seconds_without: float | None = None  # of a step without prompts
        self._answers_without = 0  # of the last such step
        self._seconds_beside: float | None = None  # added by a token to a step whose answers set the pace
        self._seconds_at_once: float | None = None  # of a token, if a step computes many
        self._seconds_of_work: float | None = None  # of the encoder: a patch in one layer
        self._last_work = LEAST_WORK  # of the last paced step that had any
        self._layers = Line()  # seconds that are added to a step, by the work of its layers
        self._most_layer_work = 0  # of a step so far
        self._measured_at = -_MEASURE_EVERY
        self._paused_at = -_PAUSE_EVERY
        self._last = 0  # tokens of the last paced step that had any

    def applies_to(self, step: ScheduledStep) -> bool:
        """Whether prompts are held back: there are some, there are streamed answers, and there is something else to
        compute."""
        if not ((self._running.prefilling or self._waiting) and (step.rows or self._in_flight)):
            return False
        return any(sequence.request.prompt.is_streamed for sequence in self._running.decoding)

    def allowance(self, step: ScheduledStep, num_prefilling: int, most: int) -> Allowance:
        """How many tokens of these prompts and of waiting ones, `most` at most, the step may compute along with its
        streamed answers."""
        num_waiting = len(self._waiting)
        if self._must_measure(step):
            self._measured_at = step.number
            return Allowance(0, 0)
        num_prompts = num_prefilling + num_waiting + len(self._followers.waiting)
        together = min(most, self._share() * min(_MOST_SHARES, num_prompts))
        # Waiting prompts come in one after another, and may have to wait longer: they count as one.
        parts = min(num_prefilling + min(1, num_waiting), max(1, together // _LEAST))
        pause = min(most - together, self._pause(step))
        return Allowance(together, together // parts, pause, work_of_token=self._work_of_token())

    def _work_of_token(self) -> float | None:
        if self._seconds_beside is None or self._seconds_of_work is None:
            return None
        return max(self._seconds_beside, _NO_TIME) / max(self._seconds_of_work, _NO_TIME)

    def _must_measure(self, step: ScheduledStep) -> bool:
        if self._seconds_without is None or step.num_decodes < _FEWER_ANSWERS * self._answers_without:
            return True
        return step.number - self._measured_at >= _MEASURE_EVERY

    def _share(self) -> int:
        if self._seconds_without is None or self._seconds_beside is None:
            return _LEAST
        fitting = (_RATIO - 1) * self._seconds_without / max(self._seconds_beside, _NO_TIME)
        return max(_LEAST, int(min(fitting, 2 * self._last)) // _LEAST * _LEAST)

    def _pause(self, step: ScheduledStep) -> int:
        if step.number - self._paused_at < _PAUSE_EVERY:
            return 0
        if self._seconds_at_once is None:
            return _LEAST
        return int(_PAUSE / max(self._seconds_at_once, _NO_TIME))

    def encoder_budget(self) -> int:
        """How much may be encoded along with streamed answers, in patches x layers, in the time for prompts. Never
        much more than the last time, since small measurements are rough."""
        if self._seconds_without is None or self._seconds_of_work is None:
            return LEAST_WORK
        fitting = (_RATIO - 1) * self._seconds_without / max(self._seconds_of_work, _NO_TIME)
        return max(LEAST_WORK, int(min(fitting, 2 * self._last_work)))

    def layer_work(self, num_tokens: int) -> int:
        """How much work on layers fits into the time for so many tokens of one prompt, in tokens x layers. A step that
        is longer in any case, because it has layers at all, may take as long again for their work."""
        if not num_tokens or self._seconds_without is None:
            return min(num_tokens, _LEAST)
        seconds = (_LAYERS_RATIO - 1) * self._seconds_without * min(1, num_tokens / self._share())
        fitting = max(seconds - self._layers.fixed, self._layers.fixed) / max(self._layers.slope, _NO_TIME)
        return max(_LEAST, int(min(fitting, 2 * self._most_layer_work)))

    def note_pause(self, step: ScheduledStep) -> None:
        """Note a step that keeps its streams waiting for longer than they should."""
        step.has_pause = True
        self._paused_at = step.number

    def learn(self, step: ScheduledStep, seconds: float) -> None:
        """Learn from a step's duration."""
        count = step.num_prompt_tokens
        if step.encoder_work or step.layer_work:
            self._learn_work(step, seconds, count)
            return
        if not step.rows:
            return  # the step only dropped something
        if not count:
            self._measured_at = max(self._measured_at, step.number)
            is_outdated = step.num_decodes < _FEWER_ANSWERS * self._answers_without
            self._seconds_without = _averaged(None if is_outdated else self._seconds_without, seconds)
            self._answers_without = step.num_decodes
        elif step.has_pause or count >= _MANY:
            self._seconds_at_once = _averaged(self._seconds_at_once, seconds / sum(step.num_tokens))
        is_usual = step.is_paced and not step.has_pause and step.num_decodes
        if not count or not is_usual or self._seconds_without is None:
            return
        self._last = count
        if seconds < _TOO_SHORT * self._seconds_without:
            self._seconds_without = None
        else:
            self._seconds_beside = _averaged(self._seconds_beside, max(0.0, seconds - self._seconds_without) / count)

    def _learn_work(self, step: ScheduledStep, seconds: float, count: int) -> None:
        """Learn the speed of the encoder, or of layers, from a step that has one of them, if the rest of its time is
        known."""
        if step.rows:
            if not step.num_decodes or self._seconds_without is None or (count and self._seconds_beside is None):
                return
            seconds -= self._seconds_without + count * (self._seconds_beside or 0.0)
        seconds = max(0.0, seconds)
        if not step.layer_work:
            if step.is_paced:
                self._last_work = step.encoder_work
            self._seconds_of_work = _averaged(self._seconds_of_work, seconds / step.encoder_work)
        elif not step.encoder_work:
            self._most_layer_work = max(self._most_layer_work, step.layer_work)
            self._layers.add(step.layer_work, seconds)


def _averaged(so_far: float | None, newest: float) -> float:
    return newest if so_far is None else so_far + _NEW_SHARE * (newest - so_far)
