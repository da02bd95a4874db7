"""Where an answer ends: at a string, at a token, after so many tokens, and not before so many."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
messages = [{"role": "user", "content": "Count up from 3 to 8."}]
comma = llm.get_tokenizer().encode(",")

for params in (
    SamplingParams(temperature=0, max_tokens=64),
    SamplingParams(temperature=0, max_tokens=64, stop=["6"]),
    SamplingParams(temperature=0, max_tokens=64, stop=["6"], include_stop_str_in_output=True),
    SamplingParams(temperature=0, max_tokens=64, stop_token_ids=comma),
    SamplingParams(temperature=0, max_tokens=64, stop_token_ids=comma, min_tokens=6),
    SamplingParams(temperature=0, max_tokens=5),
):
    [output] = llm.chat(messages, params, use_tqdm=False, chat_template_kwargs={"enable_thinking": False})
    answer = output.outputs[0]
    print(repr(answer.text), answer.finish_reason, answer.stop_reason)
