"""Count what a step of four layers launches on a card that isn't there (`absent_card.py`); time what the host does.

    python step_launches.py FOLDER [FORM…]  rows of the table in docs/gpu.md, for forms of `late_compilation.py`
    python step_launches.py FOLDER host     milliseconds of the host's thread for a captured step with a prompt, whose
                                            replay costs nothing: the best of forty, and the median

A step's launches are kernels of ours, and operations of torch that compute or copy. For a process of its own.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from builders.absent_card import Card
from builders.late_compilation import FORMS, captured, checkpoint, loaded
from builders.runner_harness import SlottedRunner, TinyEngine, no_mask, prompt
from builders.seeing_models import FAMILIES
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.protocol.messages import StepResult

COUNTED = tuple(form for form, (family, *_) in FORMS.items() if family not in FAMILIES and form != "adapters")
ROWS, LAYERS, TOKENS = 16, 4, 216
Step = Callable[[], StepResult]
ROOM = {"num_blocks": 400, "num_slots": ROWS}
LIMITS: dict[str, Any] = {"max_num_batched_tokens": 600, "shares_prefixes": False}
_ALLOCATE = ("aten::empty", "aten::new_empty", "aten::detach", "aten::_unsafe_view", "aten::_local_scalar_dense")


class Computing(TorchDispatchMode):
    """Counts operations that aren't views or allocations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returns = func._schema.returns
        is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in returns)
        self.count += not is_view and not func._schema.name.startswith(_ALLOCATE)
        return func(*args, **(kwargs or {}))


def computed(runner: SlottedRunner, rows: int, prompts: int, measure: Callable[[Step], Any]) -> list[tuple[int, Any]]:
    """The tokens of each step, and what `measure` gives for it: so many rows answer, and one more at a time begins and
    ends with a prompt."""
    engine, found = TinyEngine(runner, **LIMITS), []
    for number in range(rows):
        engine.scheduler.add(prompt(number + 1, range(5, 10), max_tokens=4 + 3 * prompts))
    while (plan := engine.scheduler.plan()) is not None:
        given, result = measure(partial(runner.step, plan, no_mask))
        found.append((sum(memoryview(plan.num_tokens).cast("i")), given))
        engine.scheduler.finish(result)
        engine.scheduler.take_ends()
        if len(found) % 3 == 0 and prompts:
            prompts -= 1
            engine.scheduler.add(prompt(100 + prompts, range(5, 5 + TOKENS - rows), max_tokens=1))
    return found


def row_of(card: Card, folder: Path, form: str) -> str:
    checkpoint(folder, form, num_hidden_layers=LAYERS)
    model = loaded(folder / form, form, drafts=False)

    def measure(step: Step) -> tuple[str, StepResult]:
        before = card.num_launches
        with Computing() as computing:
            result = step()
        return f"{card.num_launches - before} + {computing.count}", result

    alone, together = (computed(captured(model, **ROOM), rows, 0, measure)[-1][1] for rows in (1, ROWS))
    mixed = next(given for tokens, given in computed(captured(model, **ROOM), ROWS - 1, 1, measure) if tokens == TOKENS)
    return f"| {form} | {alone} | {together} | {mixed} |"


def host(folder: Path) -> str:
    checkpoint(folder, "bf16", num_hidden_layers=LAYERS)
    runner = captured(loaded(folder / "bf16", "bf16", drafts=False), **ROOM)
    for graph in runner.model.forward_pass._graphs.values():
        kept = graph.replay()
        graph.replay = lambda kept=kept: kept

    def measure(step: Step) -> tuple[float, StepResult]:
        start = time.thread_time()
        result = step()
        return time.thread_time() - start, result

    taken = [1000 * given for tokens, given in computed(runner, ROWS - 1, 40, measure) if tokens == TOKENS]
    return f"best {min(taken):.2f}, median {statistics.median(taken):.2f} of {len(taken)}"


def main(folder: Path, forms: list[str]) -> None:
    card = Card()
    card.plug_in()
    with torch.inference_mode():
        for form in forms or COUNTED:
            print(host(folder) if form == "host" else row_of(card, folder, form), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
