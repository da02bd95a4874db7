"""The ranks of a model: what they exchange on a CPU, and the cores that each computes on.

Begin with `parallel.py`; `host_ranks.py` is a CPU's, and GPUs have theirs in `worker/backends/triton/card_ranks.py`.
"""
