"""What a person sees on a terminal beside answers: logs, bars, tables, and how the command line is read.

Begin with `logs.py`; `standard_error.py` is how all of it reaches the terminal.
"""
