"""Structured output: compiles grammars, and follows sequences through them token by token.

`compiler.py` makes matchers, on the threads of `pool.py`, after `trial.py` has tried the grammar in a process of its
own. `constraint.py` decides which tokens may come next, first in the thought (`thoughts.py`), then by the grammar;
`calls.py` does so within the calls of an otherwise free answer. This is the only folder that imports llguidance, and
only once a request has a grammar.
"""
