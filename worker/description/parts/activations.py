"""The activations of MLPs, by their names in configs. Imports no torch."""

from collections.abc import Mapping
from typing import Any, Literal

from ....protocol.fields.rules import shown

# Named as in the kernels' operands.
Activation = Literal["silu", "gelu", "gelu_tanh", "gelu_sigmoid", "relu", "relu2"]

_NAMES: dict[str, Activation] = {
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh", "gelu_new"), "gelu_tanh"),
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "relu2": "relu2",
}


def read_activation(
    config: Mapping[str, Any], key: str, meant: Mapping[str, str], only: Activation | None = None
) -> Activation:
    """Read an MLP's activation. `meant`: names that mean a different one here.

    Experts and layers with states have a fixed activation: `only` is the one the key may name.
    """
    name = config.get(key) or "silu"
    name = meant.get(name, name) if isinstance(name, str) else name
    known = [each for each, activation in _NAMES.items() if only in (None, activation)]
    if name not in known:
        raise ValueError(f"{key}={shown(name)} is not supported; supported are {', '.join(known)}")
    return _NAMES[name]
