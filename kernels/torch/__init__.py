"""Versions in torch's operations, for any device: each file has those of one formula; importing this registers them.

Open `operations.py` first: what layers call. `attention_invariant.py` and the tiles of `products.py` give a row the
same bits in any company.
"""

from . import attention, attention_invariant, choice, order, pointwise, products
