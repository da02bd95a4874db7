"""Models from the Hugging Face hub: checked, downloaded into huggingface_hub's own cache, and found there offline.

Names, tokens, addresses and the cache's layout are that library's; it is imported only where it is needed.
"""
