"""Texts scored: how likely the model finds each, read from the log-probabilities of the prompt alone."""

import math

from penstock import LLM, SamplingParams

llm = LLM("pocket")
question = "<|im_start|>user\nWhat is 20 + 22?<|im_end|>\n<|im_start|>assistant\n"
texts = [f"{question}{answer}<|im_end|>" for answer in ("42", "41", "Paris")]

outputs = llm.generate(texts, SamplingParams(max_tokens=1, prompt_logprobs=0))
start = len(llm.get_tokenizer().encode(question))
for text, output in zip(texts, outputs):
    # The first entry is None: nothing predicts the first token.
    scored = zip(output.prompt_token_ids[start:], output.prompt_logprobs[start:])
    total = sum(position[token].logprob for token, position in scored)
    print(f"{text.removeprefix(question)}: {math.exp(total):.2e}")
