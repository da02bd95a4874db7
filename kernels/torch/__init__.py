"""Fast forms in torch's own operations: versions of the formulas in `reference/`, used where no kernels are better.

`FAST` and `INVARIANT` (`opset.py`) are two sets of them, and `operations.py` is the face that layers call.
"""
