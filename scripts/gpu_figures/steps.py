"""An 8B model's steps in bf16 and int4: answers of 1, 16 and 256 rows by the bytes that they read, and prompts.

In this process, two steps in flight as in a tree. Weights are random.
"""

import time
from collections.abc import Iterator
from functools import partial

from bench.models import SHAPES

from penstock.worker.start.model import Model

from .idle import Drive, Sizes, loaded
from .setting import BANDWIDTH, MATRIX_RATE, Figure, Part, Setting
from .work import Work

_FORMS = {"bf16": None, "int4": "int4"}
_ROWS = (1, 16, 256)


def parts(setting: Setting) -> Iterator[Part]:
    for form in _FORMS:
        yield Part(f"steps of an 8B model, {form}", partial(_of_form, setting, form))


def _of_form(setting: Setting, form: str) -> Iterator[Figure]:
    shape = setting.sized("8b", "small")
    model, work = loaded(setting, shape, _FORMS[form]), Work.of(SHAPES[shape])
    for rows in setting.sized(_ROWS, (1, 3)):
        sizes = setting.sized(Sizes(rows, 512, 192, 32), Sizes(rows, 20, 30, 3))
        drive = Drive(setting, sizes, model)
        with setting.clock().learning():  # as a tree does while it warms up
            drive.until_all_answer()
            drive.steps(sizes.steps)  # captures what is to be captured
        start, context = time.perf_counter(), sizes.prompt + 1.5 * sizes.steps
        drive.steps(sizes.steps)
        seconds = (time.perf_counter() - start) / sizes.steps
        rate = (work.weight_bytes(form) + rows * context * work.kv_bytes()) / seconds / 1e9
        share = setting.share(rate, BANDWIDTH)
        yield Figure(f"a step of {rows} rows, 8b {form}", seconds * 1e6, "µs", share, BANDWIDTH)
        del drive
    yield _prompts(setting, form, model, work, sizes)


def _prompts(setting: Setting, form: str, model: Model, work: Work, sizes: Sizes) -> Figure:
    """Until the last of them has its first token; all sizes of steps have been met before."""
    drive = Drive(setting, sizes, model)
    start = time.perf_counter()
    drive.until_all_answer()
    seconds = time.perf_counter() - start
    rate = work.prompt_operations([sizes.prompt] * sizes.rows) / seconds / 1e12
    share = setting.share(rate, MATRIX_RATE)
    name = f"{sizes.rows} prompts of {sizes.prompt}, 8b {form}"
    return Figure(name, sizes.rows * sizes.prompt / seconds, "tokens/s", share, MATRIX_RATE)
