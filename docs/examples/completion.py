"""Prompts that are taken as they stand, without a chat template: text, token ids, or a dict of either."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
greedy = SamplingParams(temperature=0, max_tokens=16)

text = "<|im_start|>user\nWhat is 20 + 22?<|im_end|>\n<|im_start|>assistant\n"
token_ids = llm.get_tokenizer().encode(text)
for prompt in (text, token_ids, {"prompt": text}, {"prompt_token_ids": token_ids}):
    [output] = llm.generate(prompt, greedy, use_tqdm=False)
    print(type(prompt).__name__, output.outputs.text, output.outputs.finish_reason)
