"""Native kernels for processors: C++ in `source/`, behind structs of arguments.

Open `operations.py` first: what layers call becomes calls (`calls/`) that `program.py` replays. `build.py`,
`variants.py` and `library.py` compile and load the kernels; weights are packed in `weights/`.
"""
