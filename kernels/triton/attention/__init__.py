"""Storing keys and values in paged memory, and attention over them."""
