"""Engines that see, compared by `bench_sight.py`: what each is told, the model that all of them get, and what is asked.

Engines are those of the folder above with a further command (`look.py`); nothing here imports one before its own
process asks for it.
"""
