"""Everything that may be asked of the bundled model, by name: requests that differ in what they ask for."""

from typing import Any

from penstock import BeamSearchParams, SamplingParams
from penstock.frontend.requests.prompts import RenderedPrompt

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]
ADD_FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": ADD}}
LIST = 'root ::= item ("," item){2,5}\nitem ::= [a-f] [0-9]{2}\n'
TEXT = "Ada is 36 years old and lives in Paris. " * 6
OPTIONS = {
    "max_model_len": 512,
    "block_size": 16,
    "enable_lora": True,
    "max_loras": 2,
    "max_lora_rank": 8,
    "reasoning_parser": "qwen3",
    "deterministic": True,
    "quiet": True,
}


def asked(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


SUM, COUNT, HELLO = asked("What is 348 + 275?"), asked("Count up from 3 to 9."), asked("Hello there!")
LONG = asked(TEXT + "How old is Ada?")
BOOK = {"type": "function", "function": {"name": "book", "parameters": PERSON}}
# A name, the prompt, and what is asked of it.
REQUESTS: dict[str, tuple[str | RenderedPrompt, dict[str, Any]]] = {
    "greedy": (SUM, {"temperature": 0}),
    "free": (TEXT, {"max_tokens": 60, "ignore_eos": True}),
    "free, later in the same text": (TEXT + "Who", {"max_tokens": 60, "ignore_eos": True}),
    "truncated": (HELLO, {"top_k": 30, "top_p": 0.9, "min_p": 0.01, "temperature": 1.4}),
    "three samples": (HELLO, {"n": 3, "temperature": 1.7, "logprobs": 1}),
    "json": (LONG, {"guided_json": PERSON}),
    "json, three samples": (LONG, {"guided_json": PERSON, "n": 3, "logprobs": 2}),
    "json behind a thought": (SUM, {"guided_json": PERSON, "temperature": 0}),
    "json behind a short thought": (SUM, {"guided_json": PERSON, "temperature": 0, "reasoning_max_tokens": 6}),
    "regex": (HELLO, {"guided_regex": "[a-z]{3,8}@[a-z]{2,9}\\.com"}),
    "choice": (HELLO, {"guided_choice": ["quite sure", "not sure at all"]}),
    "grammar": (COUNT, {"guided_grammar": LIST}),
    "short thought": (SUM, {"temperature": 0, "reasoning_max_tokens": 5, "logprobs": 2}),
    "sampled thought": (SUM, {"temperature": 0.8, "reasoning_max_tokens": 12}),
    "calls": (RenderedPrompt(LONG + "<tool_call>", [BOOK]), {"n": 2, "ignore_eos": True}),
    "adapter": (SUM, {"lora_name": "first"}),
    "other adapter": (SUM, {"lora_name": "second", "logprobs": 3}),
    "adapter and json": (LONG, {"lora_name": "second", "guided_json": PERSON}),
    "scored": (LONG, {"temperature": 0, "logprobs": 4, "prompt_logprobs": 4}),
    "scored under an adapter": (TEXT, {"lora_name": "first", "prompt_logprobs": 1, "max_tokens": 4}),
    "whole vocabulary": (COUNT, {"logprobs": -1, "max_tokens": 5}),
    "repetition": (TEXT, {"temperature": 0, "repetition_penalty": 1.4, "max_tokens": 40}),
    "repetition in the answer": (
        TEXT,
        {"temperature": 0, "repetition_penalty": 1.4, "suppress_repetition_in_generation": True, "max_tokens": 40},
    ),
    "penalties": (TEXT, {"frequency_penalty": 0.7, "presence_penalty": 0.4, "max_tokens": 40}),
    "n-grams": (TEXT, {"temperature": 0, "no_repeat_ngram_size": 2, "max_tokens": 40, "ignore_eos": True}),
    "looping": (
        "red, green,",
        {"temperature": 0, "logit_bias": {40: 50}, "logprobs": 1, "early_stop": {"window_size": 10, "threshold": 0.6}},
    ),
    "cycle": (
        "red, green,",
        {"temperature": 0, "logit_bias": {40: 50}, "early_stop": {"strategy": "cycle", "window_size": 20}},
    ),
    "stop string": (COUNT, {"temperature": 0, "stop": ["7"]}),
    "longer stop string": (COUNT, {"temperature": 0, "stop": ["6, 7"], "logprobs": 0}),
    "bad words": (asked("What is the capital of France?"), {"temperature": 0, "bad_words": ["Paris"], "logprobs": 1}),
    "biased": (COUNT, {"logit_bias": {40: 3.0, 60: -5.0}, "min_tokens": 12}),
    "urgent": (LONG, {"priority": -1, "max_tokens": 30, "ignore_eos": True}),
    "salted": (LONG, {"cache_salt": "mine", "temperature": 0}),
}
SEARCHES: dict[str, tuple[dict[str, Any], BeamSearchParams]] = {
    "beams": ({"prompt": LONG}, BeamSearchParams(beam_width=4, max_tokens=30, ignore_eos=True)),
    "ending beams": ({"prompt": SUM}, BeamSearchParams(beam_width=3, max_tokens=40, early_stopping=True)),
    "beams under an adapter": ({"prompt": HELLO, "lora_name": "first"}, BeamSearchParams(beam_width=3, max_tokens=16)),
}


def params(number: int, own: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "seed": number, "max_tokens": 64, **own})
