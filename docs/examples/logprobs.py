"""How sure the model was: the probability of each token that it chose, and of those that it might have chosen."""

import math

from penstock import LLM, SamplingParams

llm = LLM("pocket")
messages = [{"role": "user", "content": "What is the capital of Italy?"}]
[output] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=16, logprobs=3))

answer = output.outputs[0]
for token, position in zip(answer.token_ids, answer.logprobs):
    others = {entry.decoded_token: f"{math.exp(entry.logprob):.4f}" for entry in position.values()}
    print(repr(position[token].decoded_token), f"rank {position[token].rank}", others)
print(f"the whole answer: {math.exp(answer.cumulative_logprob):.4f}")
