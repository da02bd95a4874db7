"""Models in the stores of other programs, read in place: Ollama's, LM Studio's, and llama.cpp's downloads.

Nothing there is copied, changed or removed. Begin with `stored_models.py`.
"""
