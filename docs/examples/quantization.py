"""Weights and keys and values in 8 bits: less memory, more speed, nearly the same answers."""

from penstock import LLM, SamplingParams

# Or quantization="int4". Any bf16, fp16 or fp32 checkpoint is converted while it loads; docs/quantization.md says more.
with LLM("pocket", quantization="int8", kv_cache_dtype="int8", max_model_len=512) as llm:
    messages = [{"role": "user", "content": "What is the capital of Italy?"}]
    [output] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=16))
print(output.outputs.text)
