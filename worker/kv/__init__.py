"""The memory of keys and values, and the copies of its blocks in CPU memory.

Begin with `kv_cache.py`; `second_tier.py` is the option `swap_space`.
"""
