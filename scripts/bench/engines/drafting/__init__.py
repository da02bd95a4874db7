"""Engines that draft from the text itself, each as its own documentation says.

`scripts/benchmark speculation-peers` asks them. None may see an answer twice: whatever an engine remembers of earlier
requests is forgotten when the prompt changes.
"""
