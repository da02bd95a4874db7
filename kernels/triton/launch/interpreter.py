"""Mends Triton's interpreter to compute as a GPU does, and to call functions at little cost.

3.6 and 3.7 truncate to bfloat16 where they should round, multiply its bits as if they were integers, give a row other
bits in another place of a product, and hand NumPy arrays of one element to `range`, which NumPy 2.4 refuses. With every
call of a function they look through a whole module for what to replace, though the launch has done so already.
"""

from functools import cache
from typing import Any

import numpy
import triton.language as tl
from triton.runtime import interpreter

from .interpreter_speed import speed_up

_convert_float = interpreter._convert_float
_create_dot = interpreter.InterpreterBuilder.create_dot
_patch_functions, _patch_tensor = interpreter._patch_lang, interpreter._patch_lang_tensor


@cache
def mend() -> None:
    """Before the first launch of an interpreted kernel."""
    interpreter._convert_float = _convert
    interpreter.InterpreterBuilder.create_dot = _dot
    interpreter._patch_lang_tensor = _patch_tensor_for_numpy
    interpreter.InterpretedFunction.__call__ = _call
    speed_up()


def _widened(bits: numpy.ndarray) -> numpy.ndarray:
    """bfloat16, which is kept there as its 16 bits, in float32."""
    return (bits.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def _rounded(x: numpy.ndarray) -> numpy.ndarray:
    """To the nearest bfloat16, to even at a tie."""
    bits = numpy.ascontiguousarray(x, numpy.float32).view(numpy.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(x), bits >> 16 | 0x40, nearest).astype(numpy.uint16)


def _convert(x: numpy.ndarray, given: Any, wanted: Any, rounding_mode: Any) -> numpy.ndarray:
    if (given, wanted) == (tl.float32, tl.bfloat16):
        return _rounded(x)
    if (given, wanted) == (tl.bfloat16, tl.float32):
        return _widened(x).view(numpy.uint32)
    return _convert_float(x, given, wanted, rounding_mode)


def _dot(builder: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
    if not a.dtype.scalar.is_floating():
        return _create_dot(builder, a, b, d, *rest)
    wide = [_widened(each.data) if each.dtype.scalar == tl.bfloat16 else each.data for each in (a, b)]
    # In float64, where a sum has the same float32 in whatever order numpy takes its numbers, which hangs on the place.
    product = numpy.matmul(*wide, dtype=numpy.float64) + d.data
    return interpreter.TensorHandle(product.astype(d.data.dtype), d.dtype.scalar)


def _patch_tensor_for_numpy(tensor: Any, scope: Any) -> None:
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


def _call(function: Any, *given: Any, **named: Any) -> Any:
    """Call a function from a kernel. Triton's own functions name its modules differently, so each is patched once."""
    if function.fn not in function.rewritten_fn and "tl" not in function.fn.__globals__:
        _patch_functions(function.fn)
    return function.rewrite()(*given, **named)
