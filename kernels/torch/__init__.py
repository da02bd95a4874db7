"""Versions in torch's operations, for any device: each file has those of one formula.

Open `operations.py` first: what layers call; importing it registers them. `attention_invariant.py` and the tiles of
`products.py` give a row the same bits in any company. `arrays.py` and `parts.py` make tensors of arrays.
"""
