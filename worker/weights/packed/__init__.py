"""Packed weights on disk, which the next start maps instead of reading and packing the checkpoint again.

Begin with `cache.py`.
"""
