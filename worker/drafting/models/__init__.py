"""Drafts from models: a smaller model, or a model's own heads for further tokens. No torch."""
