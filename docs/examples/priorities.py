"""Who goes first: requests with a lower priority value pass those that wait."""

from penstock import LLM, SamplingParams

llm = LLM("pocket", max_num_seqs=1)
prompts = [{"prompt": f"request {number}", "priority": -number} for number in range(6)]
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

outputs = llm.generate_iter(prompts, params, ordered=False)
print("answered in the order", [output.prompt for output in outputs])
