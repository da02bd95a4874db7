"""Which KV blocks each sequence holds, which can be found again, and who gives blocks up when none is free.

Begin with `cache.py`; `preemption.py` says who gives way, `offload.py` what is kept in the CPU's memory.
"""
