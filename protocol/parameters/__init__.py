"""Parameters of requests: sampling, beam search, shapes of answers, and early ends.

Begin with `sampling.py`; each field states its bounds as a rule.
"""
