"""What processes say to one another: messages, parameters, configuration, errors, sockets, child processes.

It imports no other room and no torch; the other rooms act on what it defines.
"""
