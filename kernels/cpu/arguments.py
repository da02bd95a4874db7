"""The struct that all kernels share, as C lays it out: the step. Mirrors `source/step.hpp`."""

import ctypes
from ctypes import c_int32, c_int64, c_void_p


class Step(ctypes.Structure):
    """What changes from one step to the next; the arguments of kernels point into it."""

    _fields_ = [
        ("num_tokens", c_int32),
        ("num_rows", c_int32),
        ("num_logits", c_int32),
        ("table_width", c_int32),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("rotations", c_void_p),
        ("kv_slots", c_void_p),
        ("logit_rows", c_void_p),
        ("query_starts", c_void_p),
        ("context_lengths", c_void_p),
        ("block_tables", c_void_p),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("num_adapted", c_int64),
        ("adapted", c_void_p),  # int32 [num_adapted, 3]
        ("adapted_tokens", c_void_p),
    ]

    def address_of(self, field: str) -> int:
        return ctypes.addressof(self) + getattr(type(self), field).offset
