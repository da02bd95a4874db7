"""Prompts that end in numbers: what a model makes of its rows, and what its callers get."""
