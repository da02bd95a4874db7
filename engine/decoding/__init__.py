"""Decoding: a sequence gets its tokens freely, within a grammar, or as one beam of a search.

`DecodingStrategy` in `request.py` has the few methods that all strategies share. Begin with `strategy.py`, which
decodes plainly.
"""
