"""What a request cost and what the engine has done: times, tokens, cache hits."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
conversations = [[{"role": "user", "content": f"What is {number} + 5?"}] for number in range(8)]
outputs = llm.chat(conversations, SamplingParams(temperature=0, max_tokens=16))

metrics = outputs[-1].metrics
print(f"{metrics.num_prompt_tokens} tokens in, {metrics.num_output_tokens} out")
print(f"waited {metrics.time_in_queue:.3f} s, first token after {metrics.first_token_time:.3f} s")
stats = llm.stats()
print(f"{stats.steps} steps for {stats.generated_tokens} tokens in all")
print(f"{stats.free_blocks} of {stats.blocks} KV blocks are free")
