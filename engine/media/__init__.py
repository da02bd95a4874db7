"""Pictures and videos in the engine: plans when they are encoded and keeps track of their rows, as numbers and opaque
bytes.

Begin with `encoder.py`; docs/sight.md explains the whole path.
"""
