"""What a model sees, before it is seen: pictures and videos are decoded, resized and given their places in a prompt.

Prompts enter by `door.py`, which asks `sight.py` for all that is to be known of the model. `sources/` takes what
callers give; files are decoded in helper processes with limits (`processes.py`, `decoding/`); `families/` knows what
each family of models wants; placeholders become tokens, with their positions. docs/sight.md tells the rest.
"""
