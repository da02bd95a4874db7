"""The fields of `SamplingParams(…)` as type checkers and editors see them, each with every type it accepts.

`SamplingParams` has the meanings and defaults, and keeps one type; tests check that both have the same names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from .early_stop import EarlyStop
from .guided import GuidedDecodingParams


class SamplingFields(TypedDict, total=False):
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    frequence_penalty: float | None
    repetition_penalty: float | None
    suppress_repetition_in_generation: bool | None
    no_repeat_ngram_size: int | None
    max_tokens: int | None
    max_length: int | None
    min_tokens: int | None
    min_length: int | None
    stop: str | Iterable[str] | None
    stop_token_ids: int | Sequence[int] | None
    stop_words_ids: Iterable[Sequence[int] | int] | None
    ignore_eos: bool | None
    eos_token_id: int | Sequence[int] | None
    early_stop: EarlyStop | Mapping[str, Any] | None
    include_stop_str_in_output: bool | None
    bad_words: str | Iterable[str] | None
    bad_words_ids: Iterable[Sequence[int] | int] | None
    bad_words_token_ids: Iterable[Sequence[int] | int] | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    logits_processors_args: Mapping[str, Any] | None
    seed: int | None
    n: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    receipt: bool | None
    skip_special_tokens: bool | None
    spaces_between_special_tokens: bool | None
    detokenize: bool | None
    priority: int | None
    continue_on_restart: bool | None
    cache_salt: str | None
    prediction: str | Mapping[str, Any] | None
    lora_name: str | None
    reasoning_max_tokens: int | None
    max_thinking_tokens: int | None
    guided_decoding: GuidedDecodingParams | Mapping[str, Any] | None
    guided_json: Any  # a schema as a dict or as text, or a pydantic model
    guided_regex: str | None
    guided_choice: str | Iterable[str] | None
    guided_grammar: str | None
    guided_json_object: bool | None
    guided_structural_tag: Any
    structural_tag: Any
    response_format: Any  # OpenAI's dict, or a pydantic model
