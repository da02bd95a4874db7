"""One layer's packed keys and values, in the struct that native kernels read."""

from ctypes import Structure, c_int64, c_void_p

HEAD_DIM_STEP, LARGEST_HEAD_DIM = 16, 256


class KVMemory(Structure):
    """One layer's memory, as the kernels see it."""

    _fields_ = [
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),  # null where the format has none
        ("value_scales", c_void_p),
        ("format", c_int64),
        ("block_size", c_int64),
        ("num_heads", c_int64),
        ("head_dim", c_int64),
    ]
