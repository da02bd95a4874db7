"""The files that Penstock reads and keeps: a model's, an owner's, and the folders that it makes itself.

Begin with `own_folder.py`, which decides what may ever be removed; `user_folders.py` says where things may go.
"""
