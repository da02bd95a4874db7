"""An answer shown as it comes; leaving the loop ends the request."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
messages = [{"role": "user", "content": "What is 348 + 275?"}]

for delta in llm.stream(messages, SamplingParams(temperature=0, max_tokens=128)):
    print(delta.outputs.reasoning_content or "", delta.outputs.text, sep="", end="", flush=True)
print()

for delta in llm.stream(messages, SamplingParams(temperature=0, max_tokens=128)):
    if "=" in (delta.outputs.reasoning_content or ""):
        break  # seen enough
print("left after", delta.outputs.send_idx + 1, "deltas")
