"""What a step of an 8B model costs whose rows have drafts: 1, 2, 4 and 8 tokens of a row, for 1 and 8 rows.

In the form whose rows have the same bits in any step, since only there something is drafted. All drafts are the same
token, so nearly all are wrong: a step costs the same whether they are or not.
"""

import time
from collections.abc import Iterator
from functools import partial

from penstock.engine.admission.limits import DraftLimits
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.drafting.drafter import Drafter
from penstock.worker.drafting.drafting import Drafting
from penstock.worker.drafting.proposer import Look
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.model import Model

from .idle import Drive, Sizes, loaded
from .setting import Figure, Part, Setting

_TOKENS = (1, 2, 4, 8)
_DRAFT = 7


class OneToken(Drafter):
    """Drafts a token again and again, as often as there is room."""

    def __init__(self) -> None:
        super().__init__([])

    def drafts(self, looks: list[Look], num_rows: int) -> list[list[int]]:
        return [[_DRAFT] * look.most for look in looks]


def parts(setting: Setting) -> Iterator[Part]:
    yield Part("steps with drafts, 8b bf16", partial(_measured, setting))


def _measured(setting: Setting) -> Iterator[Figure]:
    options = BackendOptions(deterministic=True, drafts=True)
    model = loaded(setting, setting.sized("8b", "small"), options=options)
    for rows in setting.sized((1, 8), (2,)):
        of_one = 0.0
        for tokens in _TOKENS:
            seconds = _step_seconds(setting, model, rows, tokens)
            of_one = of_one or seconds
            name = f"a step of {rows} rows x {tokens} tokens, 8b bf16, deterministic"
            yield Figure(name, seconds * 1e6, "µs", None, f"{seconds / of_one:.2f} x that of one token")


def _step_seconds(setting: Setting, model: Model, rows: int, tokens: int) -> float:
    sizes = setting.sized(Sizes(rows, 512, 256, 32), Sizes(rows, 20, 60, 3))
    draft_limits = DraftLimits(each=tokens - 1, all=rows * (tokens - 1)) if tokens > 1 else None
    drive = Drive(setting, sizes, model, draft_limits)
    drive.runner.drafting = Drafting(drive.runner.table, Parallel(), OneToken(), send=lambda drafts: None)
    with setting.clock().learning():
        drive.until_all_answer()
        drive.steps(sizes.steps)  # captures what is to be captured
    start = time.perf_counter()
    drive.steps(sizes.steps)
    return (time.perf_counter() - start) / sizes.steps
