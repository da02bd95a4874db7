"""The memory plan of a rank: free memory, the model's needs, and how many blocks of keys and values fit.

Begin with `plan.py`.
"""
