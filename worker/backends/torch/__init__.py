"""Torch's own operations, on any device: no decoder of its own, no fast steps.

Begin with `backend.py`.
"""
