"""Tools: the model asks for a call, the script makes it, the model reads what it brought."""

import json

from penstock import LLM, SamplingParams


def get_weather(city: str) -> dict[str, object]:
    return {"city": city, "temperature": 21, "sky": "sunny"}


weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

llm = LLM("pocket")
greedy = SamplingParams(temperature=0, max_tokens=128)
messages = [{"role": "user", "content": "What's the weather in Paris?"}]

[output] = llm.chat(messages, greedy, tools=[weather], use_tqdm=False)
print(output.outputs.finish_reason)
for call in output.outputs.tool_calls:
    arguments = json.loads(call.function.arguments)
    print(call.function.name, arguments)
    asked = {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}
    messages.append({"role": "assistant", "content": "", "tool_calls": [asked]})
    found = json.dumps(get_weather(**arguments))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": found})

[output] = llm.chat(messages, greedy, tools=[weather], use_tqdm=False)
print(output.outputs.text)
