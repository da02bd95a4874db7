"""Files that Penstock reads and keeps: a model's, an owner's, and folders that it makes itself.

Begin with `own_folder.py`, which decides what may ever be removed; `user_folders.py` chooses where files may go.
"""
