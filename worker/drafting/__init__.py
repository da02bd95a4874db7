"""Drafts: guesses about a sequence's next tokens, which a step checks along with the token that it computes anyway.

A draft never changes an answer, only how many tokens a step gives. Begin with `proposer.py`, what a source of drafts
is; `worth.py` decides how many of them a step checks. No torch.
"""
