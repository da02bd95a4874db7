"""Weights as products read them: torch's on any device, and those of a GPU's kernels.

Begin with `torch_weights.py`. Those of a CPU's native kernels are in `../cpu/weights/`.
"""
