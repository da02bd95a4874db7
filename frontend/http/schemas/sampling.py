"""The fields that every request for an answer may have: OpenAI's, and the further ones that vLLM's server takes.

None is the same as not given; then the model's own default holds. Knows nothing of what is sampled.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MOST = 2**31 - 1
Count = Annotated[int, Meta(ge=1, le=MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Ranked = Annotated[int, Meta(ge=0, le=20)]
TokenId = Annotated[int, Meta(ge=0, le=MOST)]
FreeForm = dict[str, Any]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None  # without effect


class Ignored(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields that clients of OpenAI's send, and that change nothing here."""

    user: str | None = None
    metadata: FreeForm | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    request_id: str | None = None


class Sampling(Ignored, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str | None, Meta(description="a name from /v1/models; an adapter's is one, too")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=1000)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MOST)] | None = None
    min_p: Share | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=1000)] | None = None
    no_repeat_ngram_size: Annotated[int, Meta(ge=0, le=1024)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: Ranked | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    reasoning_max_tokens: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    priority: Annotated[
        int, Meta(ge=-MOST, le=MOST, description="lower goes first; other than 0 only where the server allows it")
    ] | None = None
    cache_salt: Annotated[str, Meta(max_length=1024)] | None = None
    lora_name: Annotated[str, Meta(max_length=1024)] | None = None
    response_format: FreeForm | None = None
    guided_json: FreeForm | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None
    structured_outputs: Annotated[FreeForm | None, Meta(description="as vLLM writes it: {form: value}")] = None
    structural_tag: FreeForm | None = None

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


# Those that SamplingParams has under the same name.
SAME_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "n", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos",
    "min_tokens", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "no_repeat_ngram_size",
    "logit_bias", "bad_words", "prompt_logprobs", "skip_special_tokens", "spaces_between_special_tokens",
    "reasoning_max_tokens", "priority", "lora_name", "response_format", "guided_regex", "guided_choice",
    "guided_grammar", "guided_json_object", "structural_tag",
)  # fmt: skip


class PromptDetails(msgspec.Struct, kw_only=True):
    cached_tokens: int = 0


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class PromptLogprob(msgspec.Struct, kw_only=True):
    logprob: float
    rank: int
    decoded_token: str | None


PromptLogprobs = list[dict[str, PromptLogprob] | None]
