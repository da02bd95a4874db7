"""Several answers to one question; with a seed they are the same tomorrow."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
messages = [{"role": "user", "content": "Name a colour."}]
sampled = SamplingParams(temperature=1.0, top_p=0.95, n=3, seed=7, max_tokens=24)

[first] = llm.chat(messages, sampled)
[again] = llm.chat(messages, sampled)
for answer in first.outputs:  # `first.outputs.text` is the first of them
    print(answer.index, repr(answer.text))
assert [answer.token_ids for answer in first.outputs] == [answer.token_ids for answer in again.outputs]
