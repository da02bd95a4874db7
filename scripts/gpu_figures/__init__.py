"""What `bench_gpu.py` measures on a card, a file for each kind of measurement."""
