"""Compile, for a card that is not there (`absent_card.py`), what `scripts/check_gpu` launches on one.

    python compiled_beforehand.py CAPABILITY [MOST]   into Triton's own cache, TRITON_CACHE_DIR; at most MOST kernels

Triton finds a kernel there by a digest of the kernel's source, of its arguments' types, of the target and of Triton
itself, so a card of this capability (× 10) finds it too, from any folder, with the same build of Triton for the same
Python. For a process of its own.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from bench.models import SHAPES, write_config
from builders.absent_card import Card, Launched
from builders.launched_kernels import FAMILIES, launch

from penstock.frontend.models.model_files import find_model
from penstock.worker.backends.backend import BackendOptions
from penstock.worker.start.memory.profile import Size

_LONGEST = 512
# Of the bundled model, as `tests/gpu/test_greedy_equals_the_cpu.py` and `test_graphs.py` load it.
_FORMS: tuple[dict[str, Any], ...] = (
    {"dtype": "float32"},
    {"dtype": "bfloat16"},
    *({"dtype": "bfloat16", "quantization": name} for name in ("int8", "wint8", "int4")),
)


def launch_all() -> Iterator[str]:
    """As far as the compiler; yield what has been launched."""
    for family in FAMILIES:
        launch(family)
        yield family
    with tempfile.TemporaryDirectory() as folder:
        for shape, rows in (("0.6b", 256), ("8b", 16)):
            files = Path(folder) / shape
            files.mkdir()
            write_config(files, {**SHAPES[shape], "num_hidden_layers": 2, "dtype": "bfloat16"})
            _start(files, Size(rows, 512), load_format="dummy")
            yield shape
        for form in _FORMS:
            _start(find_model("pocket").folder, Size(32, 512), **form)
            yield f"pocket, {', '.join(form.values())}"


def _start(files: Path, size: Size, **options: Any) -> None:
    """A tree's first start: it tunes, and captures its steps."""
    from penstock.worker.start.card.warm_up import warm_up
    from penstock.worker.start.load import load_model

    backend = BackendOptions(captured_tokens=size.max_num_batched_tokens)
    model = load_model(files, options=backend, **options)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as kept:
        warm_up(model, size, model.plain_memory(1, 16), _LONGEST, model.backend.device, Path(kept))


def is_compiled(launched: Launched) -> bool:
    """Try the compiler and the assembler; what tuning tries they may refuse on a card, too."""
    try:
        launched.code()
    except Exception as error:
        print(f"{launched.kernel.__name__}: {type(error).__name__}", flush=True)
        return False
    return True


def main(capability: int, most: int | None = None) -> None:
    card = Card(capability)
    card.plug_in()
    from penstock.kernels.triton.attention import paged

    paged.library = lambda *given: None  # type: ignore[assignment]  # a card may have none
    start = time.perf_counter()
    for what in launch_all():
        if most is not None and len(card.launched) >= most:
            break
        print(f"{what}: {len(card.launched):,} kernels so far, {time.perf_counter() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        found = [*islice(card.launched.values(), most)]
        good = sum(threads.map(is_compiled, found))
    print(f"{good:,} of {len(found):,} compiled in {time.perf_counter() - start:.0f} s", flush=True)
    if 2 * good < len(found):
        sys.exit("Most kernels did not compile, which the compiler's words above explain.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
