"""Torch's own operations, on any device, without a special decoder or fast steps.

Begin with `backend.py`.
"""
