"""What processes say to one another, and what all rooms share: parameters, options, errors, child processes, files.

It imports no other room and no torch; the other rooms act on what it defines. Begin with `messages.py`, every message
in the order in which a request meets them, then `parameters/sampling.py` and `options/config.py`.
"""
