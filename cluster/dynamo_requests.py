"""Requests of NVIDIA Dynamo, read into parameters, and outputs as its chunks: plain dicts of token ids, both ways.

Raises `RequestError` for what can't be met. `dynamo.py` is the worker that gets and answers them.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from ..protocol.errors import RequestError
from ..protocol.outputs import CompletionOutput
from ..protocol.parameters.guided import GuidedDecodingParams
from ..protocol.parameters.sampling import SamplingParams

_SALT_MARK = "dynamo-cache-salt:"
# Fields of a request that are ours under the same name, and those that have another one here.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
             "logit_bias", "n")  # fmt: skip
_STOPPING = {"max_tokens": "max_tokens", "min_tokens": "min_tokens", "ignore_eos": "ignore_eos",
             "max_thinking_tokens": "reasoning_max_tokens"}  # fmt: skip
_GUIDED = ("json", "regex", "choice", "grammar", "structural_tag")
_REFUSED = {
    "prefill_result": "prefill and decode aren't split",
    "bootstrap_info": "prefill and decode aren't split",
    "multi_modal_data": "this worker takes text only",
    "encoder_result": "this worker takes text only",
}


def params_of(request: Mapping[str, Any], defaults: SamplingParams, request_id: str) -> SamplingParams:
    """Its parameters; stop strings are Dynamo's own work."""
    for name, why in _REFUSED.items():
        if request.get(name):
            raise RequestError(f"{name}: {why}.")
    sampling, stopping, shown = (
        request.get(name) or {} for name in ("sampling_options", "stop_conditions", "output_options")
    )
    fields = {name: sampling[name] for name in _SAMPLING if sampling.get(name) is not None}
    fields |= {ours: stopping[name] for name, ours in _STOPPING.items() if stopping.get(name) is not None}
    if ids := [*(stopping.get("stop_token_ids") or ()), *(stopping.get("stop_token_ids_hidden") or ())]:
        fields["stop_token_ids"] = sorted(set(ids))
    seed = sampling.get("seed")
    # Dynamo gives a request that moves to another worker the same id.
    fields["seed"] = _seed_of(request_id) if seed is None else seed
    if (salt := _salt_of(request)) is not None:
        fields["cache_salt"] = salt
    if shown.get("prompt_logprobs") is not None:
        raise RequestError("prompt_logprobs: this worker gives log-probabilities of the answer only.")
    if shown.get("logprobs") is not None:
        fields["logprobs"] = shown["logprobs"]
    try:
        if guided := {name: value for name in _GUIDED if (value := (sampling.get("guided_decoding") or {}).get(name))}:
            fields["guided_decoding"] = GuidedDecodingParams(**guided)
        return SamplingParams(**{**_given(defaults), **fields, "detokenize": False})
    except TypeError as error:
        raise RequestError(str(error)) from error


def _given(defaults: SamplingParams) -> dict[str, Any]:
    """The model's own sampling, which holds where a request says nothing."""
    return {name: getattr(defaults, name) for name in _SAMPLING if name != "n"}


def _seed_of(request_id: str) -> int:
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest()) >> 1


def _salt_of(request: Mapping[str, Any]) -> str | None:
    """The request's cache salt, marked so that Dynamo's router finds it among an event's keys."""
    for nvext in (request.get("nvext"), (request.get("extra_args") or {}).get("nvext")):
        if isinstance(nvext, Mapping) and (salt := nvext.get("cache_salt")):
            return f"{_SALT_MARK}{salt}"
    return None


def token_ids_of(request: Mapping[str, Any]) -> list[int]:
    """Its token ids as a list; Dynamo may also send them as packed 32-bit numbers."""
    found = request.get("token_ids")
    if isinstance(found, (bytes, bytearray, memoryview)):
        if len(memoryview(found).cast("B")) % 4:
            raise RequestError("token_ids: packed ones have 4 bytes each.")
        packed = bytes(found)
        return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]
    if not found:
        raise RequestError("token_ids: there are none.")
    return list(found)


def chunk_of(sample: CompletionOutput, params: SamplingParams) -> dict[str, Any]:
    chunk: dict[str, Any] = {"token_ids": sample.token_ids, "index": sample.index}
    if sample.finish_reason is not None:
        chunk["finish_reason"] = "cancelled" if sample.finish_reason == "abort" else sample.finish_reason
    if params.logprobs is not None and sample.logprobs:
        tops = [
            [
                {"rank": each.rank, "token_id": token, "token": each.decoded_token, "logprob": each.logprob}
                for token, each in by_token.items()
            ]
            for by_token in sample.logprobs
        ]
        chunk["log_probs"] = [by_token[token].logprob for token, by_token in zip(sample.token_ids, sample.logprobs)]
        chunk["top_logprobs"] = tops
    return chunk


def usage(num_prompt: int, num_output: int, num_cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_output,
        "total_tokens": num_prompt + num_output,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }
