"""Mixtures of experts: their choice, tokens sorted by expert in blocks, grouped products, and the weighted sum."""
