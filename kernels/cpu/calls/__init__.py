"""Records calls into the native library, by what they compute: products, attention, experts, states, latents, rows.

Begin with `rows.py`. `../operations.py` puts them together.
"""
