"""Ranks of one tree on several machines.

Node 0 has the front end, the engine, the detokenizer, its ranks, and a process between them and the other machines
(`link.py`). Each of those runs `penstock worker`, which starts its ranks (`node.py`). Ranks don't notice: the inboxes
of the engine and the front end are on every machine, and frames for another one are handed on.
"""
