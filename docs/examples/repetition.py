"""Answers that repeat themselves: discouraged, made impossible, or ended."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
prompt = "la la la la"  # and it may not end the answer: it falls into a loop

for rule in (
    {},
    {"repetition_penalty": 1.3},  # over prompt and answer; suppress_repetition_in_generation=True: the answer alone
    {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"no_repeat_ngram_size": 3},
    {"early_stop": {"window_size": 12, "threshold": 0.4}},  # also an option of LLM: early_stop_config
):
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, **rule)
    [output] = llm.generate(prompt, params, use_tqdm=False)
    print(rule, repr(output.outputs.text), output.outputs.finish_reason, output.outputs.stop_reason)
