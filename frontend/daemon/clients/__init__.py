"""One client of the daemon: what it says, what it is charged for, and what it is sent.

Begin with `client_connection.py`, from a client's first frame to its last; `requests.py` admits what it asks for.
"""
