"""Activations behind a model's numbers, by the names that its files give: torch.nn's pointwise classes at their
defaults, and transformers' own names. Each takes an array of floats and returns one of the same type and shape.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]
_erf = numpy.frompyfunc(math.erf, 1, 1)


def _gelu(x: Array) -> Array:
    erf: Array = numpy.asarray(_erf(x / math.sqrt(2)), x.dtype)
    found: Array = 0.5 * x * (1 + erf)
    return found


def _gelu_by_tanh(x: Array) -> Array:
    bent: Array = numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    found: Array = 0.5 * x * (1 + bent)
    return found


def _sigmoid(x: Array) -> Array:
    share: Array = 1 / (1 + numpy.exp(-x))
    return share


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _softplus(x: Array) -> Array:
    found: Array = numpy.logaddexp(x.dtype.type(0), x)
    return found


def _below(x: Array) -> Array:
    """exp(x) - 1 of what is below 0."""
    found: Array = numpy.expm1(numpy.minimum(x, 0))
    return found


def _elu(x: Array) -> Array:
    return numpy.maximum(x, 0) + _below(x)


def _hard_sigmoid(x: Array) -> Array:
    found: Array = numpy.clip(x / 6 + 0.5, 0, 1)
    return found


def _softmax(x: Array) -> Array:
    powers = numpy.exp(x - x.max(-1, keepdims=True))
    shares: Array = powers / powers.sum(-1, keepdims=True)
    return shares


# torch's constants of SELU
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "Identity": lambda x: x,
    "Tanh": numpy.tanh,
    "Sigmoid": _sigmoid,
    "Softmax": _softmax,
    "ReLU": lambda x: numpy.maximum(x, 0),
    "ReLU6": lambda x: numpy.clip(x, 0, 6),
    "LeakyReLU": lambda x: numpy.where(x > 0, x, x * x.dtype.type(0.01)),
    "GELU": _gelu,
    "SiLU": _silu,
    "Mish": lambda x: x * numpy.tanh(_softplus(x)),
    "ELU": _elu,
    "CELU": _elu,
    "SELU": lambda x: _SELU_SCALE * (numpy.maximum(x, 0) + _SELU_ALPHA * _below(x)),
    "LogSigmoid": lambda x: -_softplus(-x),
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Softshrink": lambda x: numpy.sign(x) * numpy.maximum(abs(x) - 0.5, 0),
    "Hardshrink": lambda x: numpy.where(abs(x) > 0.5, x, x * 0),
    "Tanhshrink": lambda x: x - numpy.tanh(x),
    "Hardtanh": lambda x: numpy.clip(x, -1, 1),
    "Hardsigmoid": _hard_sigmoid,
    "Hardswish": lambda x: x * _hard_sigmoid(x),
    "tanh": numpy.tanh,
    "relu": lambda x: numpy.maximum(x, 0),
    "gelu": _gelu,
    "GELUActivation": _gelu,
    "gelu_new": _gelu_by_tanh,
    "gelu_pytorch_tanh": _gelu_by_tanh,
    "silu": _silu,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
}


def known_activations() -> str:
    """The names, for a refusal."""
    return ", ".join(sorted(filter(None, ACTIVATIONS)))
