"""Endpoints that answer with numbers instead of text: vectors, scores and classes."""
