"""The rows of a weight matrix in any of the forms that checkpoints store, from which weights are packed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy

from ..arrays import Array
from ..operands import WeightFormat
from .float8 import Float8Part
from .ggml import GgmlPart
from .mxfp4 import Mxfp4Part
from .quantized import QuantizedPart

# Floats, integers with scales, 8-bit or 4-bit floats with scales, blocks of a GGUF file.
WeightPart = Array | QuantizedPart | Float8Part | Mxfp4Part | GgmlPart


def format_of_parts(parts: Sequence[object], format: WeightFormat) -> WeightFormat:
    """The format of a weight that is packed from these parts: of 8-bit floats alone it may be another one."""
    if format.float8 is None or not all(isinstance(part, Float8Part) for part in parts):
        return format
    return replace(format, kind=format.float8, float8=None)


def rows_of(part: WeightPart, first: int, end: int) -> WeightPart:
    """Some of the outputs."""
    return part[first:end] if isinstance(part, numpy.ndarray) else part.rows(first, end)


def transposed(part: WeightPart) -> WeightPart:
    """[in, out]"""
    return part.T if isinstance(part, numpy.ndarray) else part.transposed()
