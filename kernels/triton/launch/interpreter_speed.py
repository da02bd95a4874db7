"""Makes Triton's interpreter more than twice as fast: what it works out for every tensor is worked out once for a type.

The interpreter runs a kernel as Python, and most of its time is the types': a block's is made anew, name and all, for
every operation's result, and each sum of integers is cast, computed and compared as tensors once more to see whether it
overflows. Here types are kept and overflow is looked for in the numbers themselves. No result is another.
"""

from typing import Any

import numpy
from triton.language import core, semantic
from triton.runtime import interpreter

_name_block = core.block_type.__init__
_numpy_type = interpreter._get_np_dtype
_checked = semantic.TritonSemantic.binary_op_type_checking_impl
_broadcast = semantic.TritonSemantic.broadcast_impl_value
_patch = interpreter._patch_lang

_BLOCKS: dict[tuple[str, ...], dict[str, Any]] = {}  # what a block's type knows, by its elements' and its shape
_NUMPY_TYPES: dict[str, numpy.dtype] = {}
_SCALAR = (core.constexpr(1), core.tuple([]))  # how many numbers a tensor has, and its shape
_PATCHES: dict[str, list[tuple[Any, str, Any]]] = {}  # by module of kernels, what its launches replace in Triton's
_OPERATIONS = {"add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply}


def speed_up() -> None:
    core.block_type.__init__ = _make_block
    core.tensor.__init__ = _make_tensor
    core.dtype.__eq__ = _is_same_type
    interpreter._get_np_dtype = _kept_numpy_type
    interpreter._patch_lang = _patch_again
    semantic.TritonSemantic.binary_op_type_checking_impl = _check_types
    semantic.TritonSemantic.broadcast_impl_value = _broadcast_unlike
    semantic.TritonSemantic.binary_op_sanitize_overflow_impl = _check_overflow


def _make_block(block: Any, element_ty: Any, shape: Any) -> None:
    key = (element_ty.name, *[each.value if isinstance(each, core.constexpr) else each for each in shape])
    if key not in _BLOCKS:
        _name_block(block, element_ty, shape)
        block.lengths = key[1:]
        block.of_tensors = core.constexpr(block.numel), core.tuple([core.constexpr(each) for each in block.shape])
        _BLOCKS[key] = block.__dict__
    block.__dict__ = _BLOCKS[key]


def _make_tensor(tensor: Any, handle: Any, type: Any) -> None:
    tensor.handle, tensor.type, tensor.dtype = handle, type, type.scalar
    tensor.numel, tensor.shape = type.of_tensors if type.is_block() else _SCALAR


def _is_same_type(one: Any, other: Any) -> bool:
    if isinstance(other, core.constexpr):
        other = other.value
    return isinstance(other, core.dtype) and one.name == other.name


def _kept_numpy_type(type: Any) -> numpy.dtype:
    if isinstance(type, core.block_type):
        type = type.element_ty
    if type.name not in _NUMPY_TYPES:
        _NUMPY_TYPES[type.name] = _numpy_type(type)
    return _NUMPY_TYPES[type.name]


def _check_types(
    semantics: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
    arithmetic_check: bool = True, div_or_mod: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Two numbers or tensors as the operands of one operation; those of one type are already."""
    are_tensors = isinstance(lhs, core.tensor) and isinstance(rhs, core.tensor)
    if are_tensors and lhs.type.name == rhs.type.name and not div_or_mod and not lhs.dtype.is_ptr():
        return lhs, rhs
    return _checked(semantics, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)


def _broadcast_unlike(semantics: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    if lhs.type.is_block() and rhs.type.is_block() and lhs.type.lengths == rhs.type.lengths:
        return lhs, rhs
    return _broadcast(semantics, lhs, rhs)


def _check_overflow(semantics: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    kind = lhs.type.scalar
    if kind.int_bitwidth < 64:
        result = _OPERATIONS[binary_op.__name__](lhs.handle.data, rhs.handle.data, dtype=numpy.int64)
        least, most = kind.get_int_min_value(), kind.get_int_max_value()
        if ((result < least) | (result > most)).any():
            raise OverflowError(f"{kind} overflows: {binary_op.__name__}")


def _patch_again(function: Any) -> Any:
    """What a launch replaces in Triton's modules, which need not be looked through for it each time."""
    if (module := function.__module__) not in _PATCHES:
        scope = _patch(function)
        _PATCHES[module] = [(owner, name, getattr(owner, name)) for owner, name, _ in scope._changes]
        return scope
    scope = interpreter._LangPatchScope()
    for replaced in _PATCHES[module]:
        scope.set_attr(*replaced)
    return scope
