"""Ranks of one tree on several machines.

Node 0 has the front end, the engine, the detokenizer, its own ranks, and a process that connects these to the other
machines (`link.py`). Each other machine runs `penstock worker`, which starts its ranks (`node.py`). Ranks don't
notice: every machine has an inbox for the engine and one for the front end, whose frames are forwarded to node 0.
"""
