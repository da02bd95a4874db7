"""What the front end and the workers share about the ranks of a tree.

`nccl_failures.py` explains how the libraries between ranks fail. The others are about ranks on several machines: what
these say to one another (`node_messages.py`), over which connection (`node_sockets.py`), and the file by which their
ranks meet (`meeting_file.py`).
"""
