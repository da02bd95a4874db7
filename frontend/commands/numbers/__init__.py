"""The subcommands that give numbers instead of text.

Begin with `embed.py`, a job; `rerank.py` orders the lines of one file.
"""
