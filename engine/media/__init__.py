"""Pictures and videos in the engine: plans when they are encoded and keeps track of their rows, as numbers and opaque
bytes.

Begin with `encoder.py`; `kept_rows.py` is about rows on disk; docs/sight.md explains the whole path.
"""
