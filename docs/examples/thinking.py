"""A model that thinks: its thought apart from its answer, switched off, and cut short."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
messages = [{"role": "user", "content": "What is 348 + 275?"}]
greedy = SamplingParams(temperature=0, max_tokens=128)

[output] = llm.chat(messages, greedy)
print("thought:", repr(output.outputs.reasoning_content))
print("answer:", output.outputs.text)

[output] = llm.chat(messages, greedy, chat_template_kwargs={"enable_thinking": False})
print("without:", output.outputs.text, output.outputs.reasoning_content)

# After so many tokens the thought is closed with the model's own closing tokens, and the answer follows.
brief = SamplingParams(temperature=0, max_tokens=128, reasoning_max_tokens=8)
[output] = llm.chat(messages, brief)
print("cut short:", repr(output.outputs.reasoning_content), output.outputs.text)
