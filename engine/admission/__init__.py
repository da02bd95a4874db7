"""Admission of waiting sequences to a step: queues, clients' turns, and the gates that they must pass.

Begin with `admission.py`, then `queue.py`; `limits.py` has the gates.
"""
