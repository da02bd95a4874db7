"""Models from the Hugging Face hub: judged, downloaded into huggingface_hub's own cache, and found there offline.

Everything about names, tokens, addresses and the cache's layout is that library's; imported only where it is needed.
"""
