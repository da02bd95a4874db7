"""How a waiting sequence gets into a step: queues, clients' turns, and the gates that it must pass.

Begin with `admission.py`, then `queue.py`; `limits.py` has the gates.
"""
