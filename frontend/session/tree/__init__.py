"""The processes of one model: started, watched and ended.

Begin with `tree.py`; `tree_watch.py` notices who hangs.
"""
