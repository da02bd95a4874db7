"""Prompts that end in numbers: rows of hidden states are gathered step by step, pooled, and passed through a head.

See `protocol/pooling/form.py` for what a model's form is.
"""
