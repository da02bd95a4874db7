"""What `penstock chat` is made of: what was typed, the two kinds of screen, the conversation, its commands.

Each file knows its own part only; `..chat` puts them together.
"""
