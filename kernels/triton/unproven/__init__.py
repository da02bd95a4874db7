"""Special ways that only a measurement on a card can justify. Each has a switch (`../switches.py`), which is off.

Nothing outside knows them but the backend, which takes `operations.py` where one is switched on; their tests are long.
What a card shows to be faster (`scripts/check_gpu` measures both ways) moves out of here, and what it doesn't, goes.
"""
