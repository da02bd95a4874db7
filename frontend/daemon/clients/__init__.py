"""One client of the daemon: its messages, its budget, and the replies to it.

Begin with `client_connection.py`, from a client's first frame to its last; `requests.py` admits its requests.
"""
