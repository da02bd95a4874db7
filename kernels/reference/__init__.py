"""The operations as formulas in plain torch, which every version is held against.

Open `pointwise.py` first, which is the plainest; `products.py` and `attention.py` are the rest of a layer, `sampling/`
is what comes after the last one.
"""
