"""The parts of `penstock chat`: input, the two kinds of screen, the conversation and its commands.

`..chat` combines them. Begin with `conversation.py`, then `slash.py` (the commands) and `terminal.py`.
"""
