"""Everything on a terminal besides answers: logs, bars, tables, and the command line's parser.

Begin with `logs.py`; `standard_error.py` writes all of it to the terminal.
"""
