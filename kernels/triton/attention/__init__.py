"""Attention over paged keys and values, and their storing."""
