"""The memory plan of a rank: what is free, what the model takes, and how many blocks of keys and values fit.

Begin with `plan.py`.
"""
