"""What goes wrong: a mistake in the script raises at its line, a wrong request ends alone and says why."""

from penstock import LLM, ConfigError, RequestError, SamplingParams

try:
    LLM("pocket", block_size=48)
except ConfigError as error:
    print("ConfigError:", error)

try:
    SamplingParams(temperature=float("nan"))
except RequestError as error:
    print("RequestError:", error)

llm = LLM("pocket")
prompts = [
    "fine",
    "",
    {"prompt_token_ids": [5] * 40_000},
    {"prompt_token_ids": [1, 2, 10**6]},
    {"prompt": "fine", "colour": "red"},
]
for output in llm.generate(prompts, SamplingParams(max_tokens=4)):
    print(output.error_code, output.outputs.finish_reason, output.error_msg)
