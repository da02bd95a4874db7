"""Weights of GGUF files: their names, the layers' views of them, and the division of blocks among ranks.

Begin with `checkpoint.py`; `text_views.py` finds the tensors of a decoder, `vision_views.py` those of an encoder.
"""
