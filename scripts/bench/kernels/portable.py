"""What the same bits on every CPU cost: steps of a portable model beside those of the default one, in turns.

A prompt, and decode steps of one row and of many, of a random-weight Qwen3-0.6B shape, or one of `peers`, in this
process, forward and head. bfloat16 weights have keys and values in bfloat16 by default and in float32 portably; integer
weights have them in int8 both times.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.model import Model
from penstock.worker.steps.batch import Batch

from ..batches import DEFAULT, Rows, batch_of, dummy_model, filled_memory, step_seconds
from ..harness import Quantization, compare, ratios
from ..shapes import EVERY
from ..shapes.shape import write_config

POOL_TOKENS = 16_384
FORMS = {"default": DEFAULT, "portable": BackendOptions(portable=True)}


def run(
    shape: str = "0.6b", quantization: tuple[Quantization, ...] = ("int8", "int4", "none"), prompt: int = 512,
    rows: int = 16, context: int = 512, rounds: int = 5, threads: int = 2,
) -> Any:  # fmt: skip
    steps: dict[str, Rows] = {
        f"prompt of {prompt}": [(prompt, prompt)],
        "1 row": [(1, context)],
        f"{rows} rows": [(1, context)] * rows,
    }
    return {kind: compared(shape, kind, steps, rounds, threads) for kind in quantization}


def compared(shape: str, quantization: Quantization, steps: dict[str, Rows], rounds: int, threads: int) -> Any:
    """The default form's time over the portable one's, by step: below 1 is what portable bits cost."""
    with TemporaryDirectory() as folder:
        write_config(Path(folder), EVERY[shape])
        models = {name: dummy_model(Path(folder), quantization, threads, form) for name, form in FORMS.items()}
    wanted = "auto" if quantization == "none" else "int8"
    memories = {name: filled_memory(model, POOL_TOKENS, model.kv_kind(wanted)) for name, model in models.items()}
    found = {}
    for what, asked in steps.items():
        timed = {
            name: partial(milliseconds, model, batch_of(model, memories[name], asked)) for name, model in models.items()
        }
        results = compare(f"weights {quantization}, {what}", timed, rounds, "ms")
        found[what] = 1 / ratios(results, "default")["portable"]
    return found


def milliseconds(model: Model, batch: Batch) -> float:
    return step_seconds(model, batch) * 1e3
