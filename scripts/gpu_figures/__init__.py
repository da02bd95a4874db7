"""What `bench_gpu.py` measures on a card: a file for each section, and what they share."""
