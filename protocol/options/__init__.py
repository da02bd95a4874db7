"""Options of a process tree, as in `LLM(…)`, with their defaults, rules and error messages.

Begin with `config.py`; `option_rules.py` converts what people write, `options.py` declares the types for type checkers.
"""
