"""Attention over paged keys and values, and their storing. Knows nothing of layers or who owns a block."""
