"""The daemon: one front end of several named models, shared by every program of one user on the machine.

Begin with `server.py`, which listens, then `models.py`, which loads and unloads; `clients/` serves attached clients.
"""
