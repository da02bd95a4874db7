"""Which special ways to keep: a tree as it is beside trees with one switch turned over, and what the two times say.

The switches are those of `kernels/triton/launch/switches.py`; whether a way is right, `scripts/bisect_gpu.py` says.
"""

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

from penstock import LLM
from penstock.kernels.triton.launch.switches import PEER_MEMORY, SWITCHES, Switch

from .setting import Figure, Part, Setting
from .trees import opened, requests, step_seconds, timed
from .work import Work

_FORM = "wint8"  # whose weights meet many rows as floats
_ALIKE = 0.02  # by which two runs of the same may differ


def parts(setting: Setting) -> Iterator[Part]:
    for switch in [each for each in SWITCHES if each is not PEER_MEMORY][: setting.sized(None, 1)]:
        yield Part(switch.variable, partial(_both_ways, setting, switch))


def _both_ways(setting: Setting, switch: Switch) -> Iterator[Figure]:
    if not setting.rates:
        setting.rates.update(_seconds(setting))
    with patch.dict(os.environ, {switch.variable: str(int(not switch.is_on))}):
        turned = _seconds(setting)
    for what, seconds in turned.items():
        gain = seconds / setting.rates[what]
        gain = gain if switch.is_on else 1 / gain
        yield Figure(f"{switch.variable}, {what}: time without by with", gain, "x", None, verdict(gain))


def verdict(gain: float) -> str:
    if abs(gain - 1) <= _ALIKE:
        return "no difference: the plain way is enough"
    return "keep it on" if gain > 1 else "keep it off"


def _seconds(setting: Setting) -> dict[str, float]:
    """Of a tree with the environment as it is, by what it computes."""
    with opened(setting, "8b", quantization=_FORM, max_num_seqs=64) as (llm, work):
        return {what: measure(llm, work, setting) for what, measure in _WORK.items()}


def _step_alone(llm: LLM, work: Work, setting: Setting) -> float:
    return step_seconds(llm, work, setting)[0]


def _best_of(shape: tuple[int, int, int], small: tuple[int, int, int], llm: LLM, work: Work, setting: Setting) -> float:
    """Of some rounds of so many requests with prompts and answers so long."""
    number, prompt, answer = setting.sized(shape, small)
    chance = random.Random(4)
    return min(timed(llm, requests(chance, work, [(prompt, answer)] * number)) for _ in range(3))


_WORK: dict[str, Callable[[LLM, Work, Setting], float]] = {
    "a step alone": _step_alone,
    "64 answers together": partial(_best_of, (64, 64, 128), (3, 8, 8)),
    "8 prompts of 2,048": partial(_best_of, (8, 2048, 1), (3, 40, 1)),
}
