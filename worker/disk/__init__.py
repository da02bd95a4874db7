"""KV blocks, states and rows of media on disk, from one run to the next (the options `prefix_cache_dir` and
`prefix_cache_size`).

Begin with `disk.py`, which carries out the engine's orders. `segment_folder.py` finds and bounds the files, and
`segment.py` has their format.
"""
