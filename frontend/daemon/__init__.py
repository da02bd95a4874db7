"""The daemon: one front end of several named models, shared by every program of one user on the machine."""
