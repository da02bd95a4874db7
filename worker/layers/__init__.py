"""The layers of a decoder: callable objects that load their weights and know their rank's share.

Begin with `linear.py`; `decoder.py` puts them together.
"""
