"""The files of a checkpoint: which exist, whether they are complete, and the tensors in them.

Begin with `checkpoint.py`.
"""
