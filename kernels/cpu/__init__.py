"""Native kernels for processors: C++ in `source/`, behind structs of arguments.

Open `operations.py` first: what layers call becomes calls (`calls/`) that `program.py` replays. `structs.py` has their
arguments as the C++ sources declare them. `build.py`, `libraries.py`, `variants.py` and `library.py` compile and load
the kernels; weights are packed in `weights/`.
"""
