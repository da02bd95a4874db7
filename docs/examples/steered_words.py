"""Words that must not come, and tokens made likelier or less likely."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
blue, yellow = (llm.get_tokenizer().encode(word)[0] for word in ("blue", "yellow"))

for question, params in (
    ("What is the capital of France?", SamplingParams(temperature=0, max_tokens=16)),
    # Of "Paris" the last token is masked where the others stand: the model must end, or find another spelling.
    ("What is the capital of France?", SamplingParams(temperature=0, max_tokens=16, bad_words=["Paris"])),
    ("What colour is the sky?", SamplingParams(temperature=0, max_tokens=16)),
    ("What colour is the sky?", SamplingParams(temperature=0, max_tokens=16, logit_bias={blue: -100, yellow: 5})),
):
    [output] = llm.chat([{"role": "user", "content": question}], params, use_tqdm=False)
    print(question, repr(output.outputs.text))
