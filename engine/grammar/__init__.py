"""Structured output: compiles grammars, and follows each sequence that has one token by token.

`compiler.py` makes matchers, on the threads of `pool.py`, after `trial.py` has tried the grammar in a process of its
own. `constraint.py` says what a sequence may say next, first in its thought (`thoughts.py`), then by its grammar;
`calls.py` within the calls that an otherwise free answer makes. This is the only folder that imports llguidance, and
only once a request brings a grammar.
"""
