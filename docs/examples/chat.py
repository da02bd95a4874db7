"""A conversation over several turns: each answer becomes part of the next question."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
greedy = SamplingParams(temperature=0, max_tokens=64)

messages = [{"role": "system", "content": "You are a helpful assistant."}]
for said in ("My name is Ada.", "What is the capital of Japan?", "What is my name?"):
    messages.append({"role": "user", "content": said})
    [output] = llm.chat(messages, greedy, use_tqdm=False)
    messages.append({"role": "assistant", "content": output.outputs.text})
    print(f"> {said}\n{output.outputs.text}")
