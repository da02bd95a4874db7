"""Configurations of models and of requests under DashInfer's names, and their translation.

`model_config.py` turns an `AsModelConfig` into the options of `LLM`, `generation_keys.py` a generation configuration
into `SamplingParams`.
"""
