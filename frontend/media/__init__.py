"""Prepares pictures and videos for a vision model: decodes them, resizes them and inserts them into a prompt.

Prompts enter through `door.py`, which uses `sight.py`, the interface to a model's vision. `sources/` reads callers'
media; files are decoded in helper processes with limits (`processes.py`, `decoding/`); `families/` has each model
family's requirements; `placeholders.py` turns placeholders into tokens with positions. See docs/sight.md.
"""
