"""Loaders of models, from Hugging Face's folders or as `serialize_to_path` wrote them; both share `loader.py`."""
