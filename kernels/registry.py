"""An operation is its torch reference; faster versions register beside it and must agree with it.

`@op(tolerance)` turns a torch function into an `Op`; `@that_op.implement("cpu")` adds a version for a backend. A call
goes to the version for its first argument's device, else to the one in torch, else to the reference. One generic test
runs every version on the operation's examples (`tests/builders/operation_examples`) and holds it against the reference
within the tolerance.
Knows nothing of what the operations compute.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

# The device on which a backend's version is used; "torch" serves all that have none.
_DEVICE_OF_BACKEND = {"triton": "cuda", "cpu": "cpu"}

OPS: dict[str, "Op"] = {}


@dataclass(eq=False)
class Op:
    """A reference and its faster twins."""

    name: str
    reference: Callable[..., Any]
    tolerance: float
    versions: dict[str, Callable[..., Any]] = field(default_factory=dict)  # by backend
    _chosen: dict[str, Callable[..., Any]] = field(default_factory=dict)  # by device type

    def __call__(self, first: Tensor, *rest: Any) -> Any:
        return self._chosen.get(first.device.type, self.in_torch)(first, *rest)

    @property
    def in_torch(self) -> Callable[..., Any]:
        """What devices without a version of their own use: a faster form in torch's operations, or the reference."""
        return self.versions.get("torch", self.reference)

    def implement(
        self, backend: str, available: Callable[[], bool] = lambda: True
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the decorated function for `backend`, where `available()` says that it can run here."""
        device = _DEVICE_OF_BACKEND.get(backend)

        def register(version: Callable[..., Any]) -> Callable[..., Any]:
            if available():
                self.versions[backend] = version
                if device is not None:
                    self._chosen[device] = version
            return version

        return register


def op(tolerance: float = 1e-5) -> Callable[[Callable[..., Any]], Op]:
    """Make the decorated torch function the reference of a new operation."""

    def register(reference: Callable[..., Any]) -> Op:
        name = f"{reference.__module__.rpartition('.')[2]}.{reference.__name__}"
        OPS[name] = Op(name, reference, tolerance)
        return OPS[name]

    return register
