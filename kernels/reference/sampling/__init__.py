"""The formulas of sampling, from logits to a token.

Open `choice.py` first: top_k, top_p, min_p and the draw. `adjust.py` stands before it, `logprobs.py` behind it, and
`race.py` is a GPU's way to draw.
"""
