"""A worker's start: device, ranks, weights, the memory plan, and the memory that it plans.

Begin with `start.py`; `memory.py` is the plan, `device_memory.py` what a CPU or a card has.
"""
