"""How kernels are launched: tuned by shape, switched, compiled for other GPUs, and interpreted on a CPU.

Begin with `tuning.py`.
"""
