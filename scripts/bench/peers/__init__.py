"""Other engines on the same work."""
