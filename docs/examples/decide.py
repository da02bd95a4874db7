"""Decisions instead of text: the probabilities of answers that are given, read from a model that writes text."""

from penstock import LLM

llm = LLM("pocket")
questions = [
    {"type": "choice", "instructions": "What is the capital of Italy?", "choices": ["Rome", "Paris"]},
    {"type": "predicate", "instructions": "The sky is blue."},
]
[decision] = llm.decide("Answer the question.", questions)

capital, sky = decision.answers
print("capital:", capital.choice, [f"{each.probability:.2f}" for each in capital.probabilities])
print(f"the sky is blue: {sky.probability:.2f}")
print("share of everything that it could write:", [f"{answer.label_mass:.1e}" for answer in decision.answers])
