"""How a model runs and how a request is answered, in DashInfer's names, and what that becomes here.

`model_config.py` turns an `AsModelConfig` into the options of `LLM`, `generation_keys.py` a generation configuration
into `SamplingParams`.
"""
