"""Several trees of one model behind one front end (`data_parallel_size`).

Begin with `replicas.py`, the transport that looks like one tree; `choice.py` chooses the tree of a request.
"""
