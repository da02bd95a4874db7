"""Triton's kernels in Triton's interpreter, for tests on a machine without a GPU.

A kernel is compiled or interpreted from its definition on, so import this before anything that imports triton; the
kernels' files are imported here. Trees that a test starts are not touched: they get the environment as it was.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.kernels import triton as kernels
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model


@contextmanager
def interpretation() -> Iterator[None]:
    """While it is asked for; what is loaded meanwhile computes with these kernels."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


def on_triton(folder: Path, **options: Any) -> Model:
    with interpretation():
        model = load_model(folder, **options)
    assert type(model.backend).__name__ == "TritonBackend"
    return model


with interpretation():
    import triton.experimental.gluon
    import triton.language  # noqa: F401

    from penstock.kernels.triton.launch.interpreter import mend

    mend()
    list(kernels.modules())
