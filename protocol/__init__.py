"""Messages between processes, and code that all rooms share: parameters, options, errors, child processes, files.

It imports no other room and no torch; all other rooms may import it. Begin with `messages.py`, which lists every
message in the order of a request's life, then `parameters/sampling.py` and `options/config.py`.
"""
