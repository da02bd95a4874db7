"""The ranks of a model: collectives between them, memory that GPUs share, and the cores that each computes on.

Begin with `parallel.py`.
"""
