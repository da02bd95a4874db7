"""Beam search: the likeliest answers as wholes, best first, where sampling would take them token by token."""

from penstock import LLM, BeamSearchParams

llm = LLM("pocket")
prompt = llm.apply_chat_template([{"role": "user", "content": "What is the capital of Italy?"}])
[output] = llm.beam_search([prompt], BeamSearchParams(beam_width=4, max_tokens=24))

for beam in output.outputs:
    print(f"{beam.score:8.3f} {beam.text!r}")
