"""Which pictures and videos are encoded when, and where their rows are kept: numbers and opaque bytes only.

Begin with `encoder.py`; docs/sight.md explains the whole way.
"""
