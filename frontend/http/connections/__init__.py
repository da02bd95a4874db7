"""HTTP itself: listening, connections, and one request with its answer after another, within limits.

Begin with `server.py`, then `connection.py`; what is read there becomes an ASGI call in `exchange.py`.
"""
