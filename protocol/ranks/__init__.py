"""What the front end and the workers share about the ranks of a tree.

`nccl_failures.py` explains how the libraries between ranks fail.
"""
