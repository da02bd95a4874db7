"""Rows: the prompts of a file, each read from its line, and its answer as a line.

Begin with `prompts.py`; `batch_line.py` reads and writes OpenAI's batch lines, `records.py` writes all other answers.
"""
