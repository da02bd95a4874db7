"""The start on a GPU: its memory, and the warm-up that measures it. Imports torch; begin with `card_memory.py`."""
