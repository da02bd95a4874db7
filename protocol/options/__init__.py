"""What a process tree is started with: the options of `LLM(…)`, with their defaults, rules and sentences.

Begin with `config.py`; `option_rules.py` converts what people write, `options.py` is what type checkers see.
"""
