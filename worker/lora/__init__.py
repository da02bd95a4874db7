"""LoRA adapters: the files that PEFT writes, memory for them beside each product, and loading while steps go on.

Begin with `adapters.py`; `lora_thread.py` loads and unloads them beside the steps.
"""
