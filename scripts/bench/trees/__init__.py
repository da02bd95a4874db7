"""Penstock's process tree, alone and with a model."""
