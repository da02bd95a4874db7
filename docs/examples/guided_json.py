"""JSON that follows a schema, whatever the model would rather say."""

import json

from penstock import LLM, GuidedDecodingParams, SamplingParams

schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colour": {"enum": ["red", "green", "blue"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}

llm = LLM("pocket")
messages = [{"role": "user", "content": "Write as JSON: Ada is 36 and likes blue."}]

params = SamplingParams(temperature=0, max_tokens=96, guided_decoding=GuidedDecodingParams(json=schema))
[output] = llm.chat(messages, params)
print(json.loads(output.outputs.text))

# The same in the form of OpenAI's clients; `guided_json=schema` is a third way to write it.
asked = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
[output] = llm.chat(messages, SamplingParams(temperature=0, max_tokens=96, response_format=asked))
print(sorted(json.loads(output.outputs.text)))
