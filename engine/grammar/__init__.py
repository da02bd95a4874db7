"""Answers in a given shape: grammars are compiled here, and each sequence that has one is followed token by token.

`compiler.py` makes matchers, on the threads of `pool.py` and tried first in the process of `trial.py`; `constraint.py`
says what a sequence may say next, first its thought (`thoughts.py`), then its grammar. The only folder that imports
llguidance, and only for who asks.
"""
