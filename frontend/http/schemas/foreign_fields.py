"""Fields of other servers, and of OpenAI's own, for features that don't exist here.

Clients send many of them with a neutral value: that is accepted, as null is for all of them. Any other value is refused
with a message. A field that a kind of request declares itself is not checked here.

A field that nobody here knows is refused in OpenAI's bodies. Clients of Anthropic and Ollama send new hints with each
of their versions, so there it is accepted with a notice, unless it looks like a misspelling (`OpenBody`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import slip
from ....protocol.parameters.sampling import DRAW


class ForeignField(NamedTuple):
    reason: str
    neutral: tuple[Any, ...] = ()  # in addition to null and empty lists, objects and texts

    def accepts(self, value: Any) -> bool:
        return value is None or value in ("", [], {}) or value in self.neutral


# Without effect, whatever their value: hints that could only save time, or parameters of disabled rules.
HINTS = (
    "prompt_cache_options", "context_management", "cache_prompt", "keep_alive", "id_slot", "slot_id",
    "n_cache_reuse", "sse_ping_interval", "guided_decoding_backend", "rid", "data_parallel_rank", "mirostat_tau",
    "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "dry_sequence_breakers", "usage",
)  # fmt: skip

# Another name of a sampling parameter here, with the same meaning.
RENAMED = {
    "repeat_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
    "thinking_token_budget": "reasoning_max_tokens",
    "thinking_budget": "reasoning_max_tokens",
    "max_thinking_tokens": "reasoning_max_tokens",
    "regex": "guided_regex",
    "ebnf": "guided_grammar",
    "grammar": "guided_grammar",
    "json_schema": "guided_json",
    "no_stop_trim": "include_stop_str_in_output",
}

_SAMPLER = f"this way of sampling doesn't exist here; there are {', '.join(DRAW)}"
_ORDER = f"all of these always act, in one order: {', '.join(DRAW)}; leave out those that are not to act"
_PENALTY = "this penalty doesn't exist here; use repetition_penalty, or no_repeat_ngram_size"
_TEXT = "answers are text alone"
_LENGTH = "use max_tokens, or max_output_tokens in /v1/responses"
_MORE = "answers don't tell that; logprobs and prompt_logprobs are what they can tell beside their text"
_TEMPLATE = "it is an option of chat templates; /v1/chat/completions takes it"
_MEDIA = "give each picture or video its own min_pixels, max_pixels, fps or num_frames, in its part of the message"
_OWNER = "which models run, and how, is said by the owner of the server"
_ABROAD = "there is no such service here"
_TOOLS = "give tools and tool_choice instead"
_SHAPE = "give response_format, or guided_json and its siblings"
_PROCESSORS = "requests bring no code; logits_processors is an option of the model"
_WHOLE = "prompts are neither cut nor shifted; one that is too long is refused"
_BEAMS = "HTTP has no beam search; LLM.beam_search has"
_CLUSTER = "requests aren't handed from one server to another"


def _rows(reason: str, **neutral: tuple[Any, ...]) -> dict[str, ForeignField]:
    return {name: ForeignField(reason, values) for name, values in neutral.items()}


FOREIGN_FIELDS: Mapping[str, ForeignField] = {
    # OpenAI
    **_rows(_TEXT, modalities=(["text"],), audio=(), image=(), use_audio_in_video=(False,)),
    **_rows(_TOOLS, functions=(), function_call=("none", "auto")),
    **_rows(_ABROAD, web_search_options=(), moderation=(), background_options=(), access_programs=(), plugins=()),
    **_rows("calls are made by the client, which may count them", max_tool_calls=()),
    **_rows(
        _TEMPLATE,
        verbosity=("medium",), reasoning=(), thinking=(), enable_thinking=(), think=(), reasoning_effort=(),
        include_reasoning=(True,), chat_template=(), chat_template_kwargs=(),
    ),
    **_rows("chat templates are given no documents; put their text into a message", documents=()),
    # Anthropic
    **_rows(_ABROAD, mcp_servers=(), container=()),
    # llama.cpp
    **_rows(
        _SAMPLER,
        typical_p=(1,), typ_p=(1,), tfs_z=(1,), top_a=(0,), top_n_sigma=(-1, 0), mirostat=(0,), mirostat_mode=(0,),
        dynatemp_range=(0,), xtc_probability=(0,), min_keep=(0,), epsilon_cutoff=(0,), eta_cutoff=(0,),
        adaptive_target=(-1,),
    ),
    **_rows(_ORDER, samplers=()),
    **_rows(_PENALTY, dry_multiplier=(0,), repeat_last_n=(64, -1, 0), penalize_nl=(False,)),
    **_rows(
        _LENGTH,
        n_predict=(-1,), num_predict=(-1,), max_new_tokens=(), max_length=(), t_max_predict_ms=(0,), n_indent=(0,),
    ),
    **_rows(
        _WHOLE,
        n_keep=(0, -1), num_keep=(0, -1), n_discard=(0,), truncate_prompt_tokens=(), truncate=(False, True),
        shift=(False, True), transforms=(),
    ),
    **_rows(
        _MORE,
        n_probs=(0,), post_sampling_probs=(False,), return_tokens=(False,), return_progress=(False,),
        response_fields=(), timings_per_token=(False,), return_tokens_as_token_ids=(False,),
        return_token_ids=(False,), return_hidden_states=(False,), return_routed_experts=(False,),
        return_meta_info=(False,), return_prompt_token_ids=(False,), return_cached_tokens_details=(False,),
    ),
    **_rows(
        "thoughts are always told apart, as reasoning_content",
        reasoning_format=("auto", "deepseek"), separate_reasoning=(True,), stream_reasoning=(True, False),
        thinking_forced_open=(False,), parse_tool_calls=(True,),
    ),
    **_rows("adapters are chosen by model or lora_name", lora=(), lora_path=()),
    # vLLM and SGLang
    **_rows(_BEAMS, use_beam_search=(False,), length_penalty=(1, 0), early_stopping=(False,), num_beams=(1,)),
    **_rows("use early_stop", repetition_detection=()),
    **_rows("use logit_bias or a grammar", allowed_token_ids=()),
    **_rows("a conversation gets the special tokens of its template", add_special_tokens=(False,)),
    **_rows(
        _MEDIA,
        media_io_kwargs=(), mm_processor_kwargs=(), images=(), image_data=(), max_dynamic_patch=(),
        min_dynamic_patch=(),
    ),
    **_rows(_SHAPE, guided_whitespace_pattern=(), format=()),
    **_rows(_PROCESSORS, logits_processors=(), custom_logit_processor=(), custom_params=(), vllm_xargs=()),
    **_rows("prompts are text or token ids", prompt_embeds=(), input_embeds=()),
    **_rows(
        _CLUSTER,
        kv_transfer_params=(), bootstrap_host=(), bootstrap_port=(), bootstrap_room=(), session_params=(),
    ),
    **_rows("use stop, stop_token_ids or a grammar", stop_regex=()),
    **_rows("use cache_salt", extra_key=()),
    # Ollama and OpenRouter
    **_rows("the context's length is set where the model is loaded: max_model_len", num_ctx=()),
    **_rows("give it as a message of the role system", system_prompt=(), safe_prompt=(False,)),
    **_rows(_OWNER, options=(), models=(), provider=(), route=()),
    **_rows("use /v1/completions for a text as it stands", raw=(False,), template=(), context=()),
}  # fmt: skip


def foreign(base: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """`base` with all of these fields; a derived struct may redefine some of them."""
    described = {
        **dict.fromkeys(HINTS, "without effect"),
        **{name: f"another name of {ours}" for name, ours in RENAMED.items()},
        **{name: _described(row) for name, row in FOREIGN_FIELDS.items()},
    }
    fields = [(name, Annotated[Any, Meta(description=words)], None) for name, words in described.items()]
    return msgspec.defstruct(
        "Foreign", fields, bases=(base,), kw_only=True, forbid_unknown_fields=True, module=__name__
    )


def _described(row: ForeignField) -> str:
    accepted = " or ".join(["null", *(msgspec.json.encode(value).decode() for value in row.neutral)])
    return f"only {accepted}: {row.reason}"


class OpenBody(msgspec.Struct, dict=True):
    """A body that may have unknown fields; whoever decodes it passes their names to `note_unread`."""

    # Fields of other endpoints, which would change the answer there, and what to do instead.
    elsewhere: ClassVar[Mapping[str, str]] = {}
    # Fields whose values, or the items of which, may have unknown fields as well.
    open_parts: ClassVar[Mapping[str, type[msgspec.Struct]]] = {}
    form_of_tools: ClassVar[str] = ""  # an example, for errors

    def note_unread(self, given: Mapping[str, Any]) -> None:
        """Refuse misspellings of this body's fields, and fields of other endpoints; keep other names for the notice.
        `given` are the body's fields, of which `open_parts` are decoded."""
        unread = unread_names(given, self.__struct_fields__, "The body", self.elsewhere)
        for field, kind in self.open_parts.items():
            part = given.get(field)
            names = {name for each in (part if isinstance(part, list) else [part]) for name in _set_names(each)}
            unread += unread_names(sorted(names), kind.__struct_fields__, field, getattr(kind, "elsewhere", {}))
        self.__dict__["unread"] = unread

    @property
    def unread_notice(self) -> str:
        """A sentence about fields without effect; empty if there are none."""
        return unread_notice(self.__dict__.get("unread", ()))


_MOST_UNREAD = 32  # names: comparing each with the known ones takes a millisecond
_MOST_LISTED = 8


def _set_names(part: Any) -> list[str]:
    return [name for name, value in part.items() if value is not None] if isinstance(part, dict) else []


def unread_names(
    names: Iterable[str], known: Collection[str], whole: str, elsewhere: Mapping[str, str] = {}
) -> list[str]:
    """The names that aren't known; raises for one that is nearly a known one or belongs elsewhere, and for too many."""
    unread = [name for name in names if name not in known]
    if len(unread) > _MOST_UNREAD:
        raise RequestError(f"{whole} has {len(unread):,} unknown fields, such as {shown(unread[0])}.")
    for name in unread:
        if name in elsewhere:
            raise RequestError(f"{name} is not a field here: {elsewhere[name]}.")
        if (meant := slip(name, known)) is not None:
            raise RequestError(f"{whole} has no field {shown(name)}. Did you mean {meant}?")
    return unread


def unread_notice(names: Collection[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(shown(name) for name in list(names)[:_MOST_LISTED])
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"Without effect, because nothing here reads it: {listed}{more}."
