"""Many questions in one call: answers come back in the order of the questions."""

from penstock import LLM, SamplingParams

questions = [f"What is {a} + {b}?" for a in (25, 31, 47) for b in (8, 15)]

llm = LLM("pocket")
conversations = [[{"role": "user", "content": question}] for question in questions]
outputs = llm.chat(conversations, SamplingParams(temperature=0, max_tokens=64))

for question, output in zip(questions, outputs):
    print(question, output.outputs.text)
