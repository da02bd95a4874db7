"""The operations on logits for tensors: each in its version for the tensors' device.

On a CPU these are the native ones where there are any, for tensors share their memory with arrays there.
"""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any

import numpy
from torch import Tensor

from ..cpu.library import LibraryError, load
from ..cpu.sampling import NativeSampling
from ..reference.sampling.adjust import apply_mask, penalize_generated, penalize_repetition
from ..reference.sampling.choice import choose
from ..reference.sampling.logprobs import ranked_logprobs
from ..reference.sampling.order import most_likely, scan
from .arrays import array_of, tensor_of


class TensorSampling:
    scan = scan
    choose = choose
    most_likely = most_likely
    ranked_logprobs = ranked_logprobs
    apply_mask = apply_mask
    penalize_repetition = penalize_repetition
    penalize_generated = penalize_generated

    def add(self, logits: Tensor, rows: Tensor, token_ids: Tensor, added: Tensor) -> Tensor:
        logits.view(-1).index_add_(0, rows * logits.shape[1] + token_ids, added)
        return logits


def has_native() -> bool:
    try:
        load()
    except LibraryError:
        return False
    return True


def native(name: str, *given: Any) -> Any:
    """A native operation on a CPU's tensors."""
    return _changed(getattr(NativeSampling(load()), name)(*_changed(given, Tensor, array_of)), numpy.ndarray, tensor_of)


def _changed(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with everything of a kind in it changed; a host's own columns stay arrays."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        parts = [_changed(each, kind, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: _changed(each, kind, change) for name, each in vars(value).items()})
    return value


for _operation in (scan, choose, most_likely, ranked_logprobs, apply_mask, penalize_repetition, penalize_generated):
    _operation.implement("cpu", has_native)(partial(native, _operation.reference.__name__))
