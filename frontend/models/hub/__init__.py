"""Models from the Hugging Face hub: checked, downloaded into huggingface_hub's own cache, and found there offline.

Begin with `snapshot.py`, which finds or downloads a model; `cache.py` knows where it lies, `removal.py` removes it.
Names, tokens, addresses and the cache's layout are that library's, which is imported only where it is needed.
"""
