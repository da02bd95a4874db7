"""Fields of structs that people fill in: their rules, their meanings, and errors that suggest what was probably meant.

Begin with `rules.py`, which also has the base class of such structs; `suggestion.py` says "Did you mean …?".
"""
