"""The layers of a decoder: plain objects that pull their weights, know their share of the ranks, and are called.

Begin with `linear.py`; `decoder.py` puts them together.
"""
