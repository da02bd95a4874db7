"""The endpoints' work, a file for each kind: from a decoded body to a reply. `../application.py` lists them."""
