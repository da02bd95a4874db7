"""The fields of structs that people fill in: their rules, their meanings, and errors that say what was probably meant.

Begin with `rules.py`, which has the base of such structs, too; `suggestion.py` says "Did you mean …?".
"""
