"""The files of a checkpoint: which there are, whether they are whole, and the tensors in them.

Begin with `checkpoint.py`.
"""
