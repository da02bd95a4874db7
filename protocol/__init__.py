"""What processes say to one another: messages, parameters, configuration, errors, sockets, child processes.

Knows nothing of what the processes do with it; imports no other room and no torch.
"""
