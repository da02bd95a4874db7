"""The processes of one model: started, watched, spoken to and ended.

Begin with `tree.py`, then `transport.py`; `tree_watch.py` notices who hangs.
"""
