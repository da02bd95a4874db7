"""Kernels for processors: C++ behind a C interface, compiled once for each instruction set, called through ctypes.

Without a compiler or a fitting processor torch's operations serve instead.
"""
