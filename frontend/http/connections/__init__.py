"""HTTP itself: listening, connections, and one request with its answer after another, within limits.

Begin with `server.py`, then `connection.py`; `exchange.py` turns a request into an ASGI call.
"""
