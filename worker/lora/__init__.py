"""LoRA adapters: the files that PEFT writes, room for them beside each product, and loading beside the steps.

Begin with `adapters.py`.
"""
