"""The parts of `penstock chat`: input, the two kinds of screen, the conversation and its commands.

`..chat` puts them together. Begin with `conversation.py`, then `slash.py` (the commands) and `terminal.py`.
"""
