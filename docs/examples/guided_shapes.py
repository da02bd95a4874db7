"""Answers that match a regular expression, a list of choices, or a grammar; free ones run in the same batch."""

from penstock import LLM, GuidedDecodingParams, SamplingParams

GRAMMAR = """
root ::= sum "=" number
sum ::= number ("+" number)*
number ::= [1-9] [0-9]?
"""

shapes = {
    "regex": GuidedDecodingParams(regex="[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}"),
    "choice": GuidedDecodingParams(choice=["yes", "no", "perhaps"]),
    "grammar": GuidedDecodingParams(grammar=GRAMMAR),
    "free": None,
}

llm = LLM("pocket")
params = [SamplingParams(temperature=1.0, seed=5, max_tokens=64, guided_decoding=shape) for shape in shapes.values()]
conversations = [[{"role": "user", "content": "What is 12 + 30?"}]] * len(shapes)

for name, output in zip(shapes, llm.chat(conversations, params)):
    print(f"{name}: {output.outputs.text}")
