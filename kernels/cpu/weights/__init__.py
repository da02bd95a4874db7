"""Weight matrices as the CPU kernels multiply them.

Open `packed.py` first: the five number formats. `quantized.py` takes over what quantized checkpoints hold, `lora.py`
keeps adapters, and `huge_pages.py` has the memory.
"""
