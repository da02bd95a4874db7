"""Fast forms in torch's own operations: versions of the formulas in `reference/`, used where no kernels are better.

Importing this room registers them; `operations.py` is the face that layers call.
"""

from . import attention, attention_invariant, choice, linear, logprobs, lora, order, pointwise
