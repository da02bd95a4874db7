"""Better errors for a call with an unknown argument, or of an unknown method: they say where the argument belongs, what
to call instead, or which name was meant.

The decorator keeps signature and docstring, so that editors, checkers and `help()` see the function as it is written.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..protocol.fields.suggestion import nearest, suggestion
from ..protocol.options.options import EngineOptions
from ..protocol.parameters.beams import BeamSearchParams
from ..protocol.parameters.pooling import PoolingParams
from ..protocol.parameters.sampling import SamplingParams

Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner")
Result = TypeVar("Result")


def named_arguments(
    function: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Make a method raise `TypeError` for an unknown argument as Python does, with advice on what to write instead."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def called(self: Owner, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        if unknown := named.keys() - set(names):
            raise TypeError(_refusal(type(self).__name__, function.__name__, names, min(unknown)))
        return function(self, *arguments, **named)

    return called


_NO_SCORES = "two texts are compared by the vectors of embed, or classified together"
_INSIDE = "the engine is a process of its own; the options and stats() are what there is of it"
# Attributes of other engines' classes, and what to use instead.
_ELSEWHERE = {
    **dict.fromkeys(("score", "rerank"), _NO_SCORES),
    **dict.fromkeys(("reward", "pooling"), "encode gives the model's numbers"),
    **dict.fromkeys(("llm_engine", "engine", "collective_rpc", "apply_model", "model_executor"), _INSIDE),
    **dict.fromkeys(("start_profile", "stop_profile"), "the option trace writes a timeline"),
    **dict.fromkeys(("sleep", "wake_up"), "close() gives the memory back; make a new one when it is needed"),
    **dict.fromkeys(("get_server_info", "get_num_unfinished_requests"), "stats() has the figures"),
    **dict.fromkeys(("reset_prefix_cache", "flush_cache"), "requests with different cache_salt share nothing"),
    **dict.fromkeys(("add_lora", "load_lora_adapter", "load_lora_module"), "use load_lora(name, path)"),
    **dict.fromkeys(("remove_lora", "unload_lora_adapter"), "use unload_lora(name)"),
    **dict.fromkeys(("async_generate", "from_engine_args"), "use AsyncLLM(model, …) in an event loop"),
    **dict.fromkeys(("generate_stream", "stream_generate", "stream_chat", "chat_stream"), "use stream(prompt, …)"),
    **dict.fromkeys(("shutdown", "shutdown_background_loop", "exit", "terminate"), "use close()"),
    "set_tokenizer": "the option tokenizer names one",
    "preprocess_chat": "use apply_chat_template(messages)",
    "get_default_params": "use get_default_sampling_params()",
    "list_lora": "use list_loras()",
}


_VECTOR_CALLS = "the call says what it gives: embed, classify or score; for a row of each token use encode"
_CUTTING = "texts are cut with PoolingParams(truncate_prompt_tokens=…)"
_WORDS = "write the words before each text, or give PoolingParams(instruction=…) or PoolingParams(prompt_name=…)"
_ARRAYS = "embed has as_numpy=True; with encode each result's outputs.data is an array"
# Arguments of vLLM's and sentence-transformers' calls that give numbers, and what to use instead.
_OF_NUMBERS = {
    **dict.fromkeys(("pooling_task", "task"), f"{_VECTOR_CALLS} with PoolingParams(by_token=True)"),
    **dict.fromkeys(("output_value", "convert_to_multi_vectors"), "use encode with PoolingParams(by_token=True)"),
    **dict.fromkeys(("tokenization_kwargs", "truncation_size", "max_length"), _CUTTING),
    **dict.fromkeys(("prompt", "prompt_template"), _WORDS),
    **dict.fromkeys(("as_numpy", "convert_to_numpy", "convert_to_tensor"), _ARRAYS),
    **dict.fromkeys(("batch_size", "num_workers", "device", "pool", "chunk_size"), "the engine batches by itself"),
    "normalize_embeddings": "use PoolingParams(normalize=…)",
    "truncate_dim": "use PoolingParams(dimensions=…)",
    "show_progress_bar": "use use_tqdm",
    "lora_request": 'a prompt names its adapter: {"prompt": "…", "lora_name": "…"}',
    **dict.fromkeys(("activation_fn", "apply_softmax"), "use PoolingParams(use_activation=…)"),
}


class HelpfulNames:
    """Explains, on reading another engine's attribute or a misspelt one, what to use instead."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            known = [each for each in dir(kind) if not each.startswith("_")]
            hint = "" if name.startswith("_") else suggestion(name, known)
            words = f": {_ELSEWHERE[name]}." if name in _ELSEWHERE else f".{hint}"
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{words}", name=name, obj=self)


def _refusal(owner: str, call: str, names: list[str], name: str) -> str:
    refusal = f"{owner}.{call}() has no argument {name!r}."
    if "pooling_params" in names and name in _OF_NUMBERS:
        return f"{refusal[:-1]}: {_OF_NUMBERS[name]}."
    if (kind := _params_of(names)) is not None:
        field = name if name in kind.__struct_fields__ else None
        # Another engine's name for a field, or a misspelling unlike any of the call's own.
        if field is None and name not in EngineOptions.__annotations__ and nearest(name, names) is None:
            field = nearest(name, kind.__struct_fields__)
        if field is not None:
            return f"{refusal} It is a field of {kind.__name__}: {call}(…, {kind.__name__}({field}=…))."
    if name in EngineOptions.__annotations__:
        return f"{refusal} It is an option of the model: {owner}(…, {name}=…)."
    return refusal + suggestion(name, names)


def _params_of(names: list[str]) -> type[SamplingParams] | type[BeamSearchParams] | type[PoolingParams] | None:
    if "sampling_params" in names:
        return SamplingParams
    if "pooling_params" in names:
        return PoolingParams
    return BeamSearchParams if "params" in names else None
