"""LoRA adapters: the files that PEFT and llama.cpp write, memory beside each product, and loading while steps go on.

Begin with `adapters.py`; `lora_thread.py` loads and unloads them beside the steps.
"""
