"""How a sequence gets its tokens: freely, within a grammar, or as one beam of a search.

Begin with `strategy.py`, the few methods that all three have, then `guided_decoding.py` and `beam_decoding.py`.
"""
