"""An operation is a formula in torch; versions register with it and must agree with it.

`@op(tolerance)` above the formula declares the operation: its name, its arguments and how far a version may be off.
`@that_op.implement("cpu")` adds a version for a backend. A call goes to the version for its first argument's device,
else to the one in torch's operations, else to the formula. One generic test runs every version on the operation's
examples (`tests/builders/operation_examples`) and holds it against the formula.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from ..records import dataclass

# The device on which a backend's version is used; "torch" serves all that have none. "cuda" is for torch's operations,
# too, where a GPU wants them in another way.
_DEVICE_OF_BACKEND = {"triton": "cuda", "cuda": "cuda", "cpu": "cpu"}

OPS: dict[str, "Op"] = {}


@dataclass(eq=False)
class Op:
    """A formula and its versions."""

    name: str
    reference: Callable[..., Any]
    tolerance: float
    versions: dict[str, Callable[..., Any]] = field(default_factory=dict)  # by backend
    row_invariant: "Op | None" = None  # where some version's rows depend on their company
    _chosen: dict[str, Callable[..., Any]] = field(default_factory=dict)  # by device type

    def __call__(self, first: Any, *rest: Any) -> Any:
        return self._chosen.get(first.device.type, self.in_torch)(first, *rest)

    @property
    def in_torch(self) -> Callable[..., Any]:
        """What devices without a version of their own use: a faster form in torch's operations, or the formula."""
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

    def invariant(self) -> "Op":
        """The same formula, whose versions promise that a row's bits depend on that row alone, not on its company."""
        self.row_invariant = _registered(Op(f"{self.name}_invariant", self.reference, self.tolerance))
        return self.row_invariant


def op(tolerance: float = 1e-5) -> Callable[[Callable[..., Any]], Op]:
    """Make the decorated torch function the formula of a new operation."""

    def register(reference: Callable[..., Any]) -> Op:
        name = f"{reference.__module__.rpartition('.')[2]}.{reference.__name__}"
        return _registered(Op(name, reference, tolerance))

    return register


def _registered(operation: Op) -> Op:
    OPS[operation.name] = operation
    return operation
