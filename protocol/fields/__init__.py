"""The fields of structs that people fill in: their rules, their meanings, and errors that say what was probably meant.

Begin with `rules.py`; `named_fields.py` is the base of such structs, `suggestion.py` says "Did you mean …?".
"""
