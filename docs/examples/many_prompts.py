"""More prompts than memory holds: an iterable is read as answers are made, and they come as they are ready.

The option `window` says how many are under way at once.
"""

from collections import Counter

from penstock import LLM, SamplingParams


def questions():
    for a in range(10):
        for b in range(20):
            yield f"<|im_start|>user\nWhat is {a} + {b}?<|im_end|>\n<|im_start|>assistant\n"


llm = LLM("pocket")
counted = Counter()
for output in llm.generate_iter(questions(), SamplingParams(temperature=0, max_tokens=8), ordered=False):
    counted[output.outputs.text] += 1
print(sum(counted.values()), "answers; the most frequent:", counted.most_common(3))
