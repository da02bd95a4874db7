"""Files that clients upload, and those that batches write: kept on the disk, each with the API key that owns it.

Begin with `store.py`; `upload.py` receives a file, `multipart.py` parses the form in which it comes.
"""
