"""LoRA adapters: the files that PEFT and llama.cpp write, memory for each product, and loading during steps.

Begin with `adapters.py`; `lora_thread.py` loads and unloads them in a thread.
"""
