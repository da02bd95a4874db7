"""What the front end and the workers share about the ranks of a tree.

`nccl_failures.py` explains how the libraries between ranks fail. The other files are about ranks on several machines:
their messages (`node_messages.py`), their connection (`node_sockets.py`), and the file by which their ranks find one
another (`meeting_file.py`).
"""
