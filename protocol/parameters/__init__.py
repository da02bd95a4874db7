"""What a request may ask for: how tokens are sampled, beams, shapes of answers, and when an answer is cut.

Begin with `sampling.py`; each field states its bounds itself, by a rule.
"""
