"""Models from the Hugging Face hub: checked, downloaded into huggingface_hub's own cache, and found there offline.

Begin with `snapshot.py`, which finds or downloads a model; `cache.py` knows the cache's layout, `removal.py` removes
models. Names, tokens, addresses and the layout are the library's, which is imported only when it is needed.
"""
