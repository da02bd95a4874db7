"""Formats in which model families write thoughts and calls: one row each.

The names of the rows are the values of the options `reasoning_parser` and `tool_call_parser`; `_` and `-` are the same
in them, and case is ignored. A new family is a row, and another among the signs by which `auto` finds it; a new format
of calls also needs a `CallReader`.
"""

import re
from functools import partial

from .calls.format_choice import FormatChoice
from .calls.json_call import BareJsonCall, HeadedCall, JsonCall, JsonCalls
from .calls.message_call import MessageCall
from .calls.pythonic_calls import PythonicCalls
from .calls.tagged_call import TaggedCall
from .marks import CallBody, CallForm, CallMarks, Channels, HeadedBody, JsonBody, Marks, ReaderOf, Tags, ThoughtMarks

_HARMONY = Channels(
    start="<|start|>",
    channel="<|channel|>",
    format="<|constrain|>",
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    role="assistant",
    recipient="to=",
    thoughts=("analysis",),
    texts=("final", "commentary"),
)

REASONING: dict[str, ThoughtMarks] = {
    # The prompt or the answer itself shows whether there is a thought.
    "qwen3": ThoughtMarks("<think>", "</think>"),
    # It thinks unless the prompt has closed the thought, and may leave out the opening mark.
    "deepseek-r1": ThoughtMarks("<think>", "</think>", begins_open=True),
    "ernie-45-vl": ThoughtMarks("<think>", "</think>", answer=Marks("<response>", "</response>")),
    "ernie-x1": ThoughtMarks(
        "<think>",
        "</think>",
        begins_open=True,
        answer=Marks("<response>", "</response>"),
        forced="\n</think>\n\n\n",
    ),
    "granite": ThoughtMarks(
        "Here is my thought process:",
        "Here is my response:",
        openings=("Here's my thought process:",),
        closings=("Here's my response:",),
        forced="\n\nHere is my response:",
    ),
    "mistral": ThoughtMarks("[THINK]", "[/THINK]", forced="[/THINK]"),
    "hunyuan": ThoughtMarks("<think>", "</think>", answer=Marks("<answer>", "</answer>"), forced="\n</think>\n"),
    "cohere": ThoughtMarks(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        answer=Marks("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        forced="<|END_THINKING|>",
    ),
    "seed-oss": ThoughtMarks("<seed:think>", "</seed:think>", begins_open=True, forced="</seed:think>"),
    "kimi-vl": ThoughtMarks("◁think▷", "◁/think▷", forced="◁/think▷"),
    # Anything visible to the user ends the thought for the engine: the answer, or text before calls.
    "gpt-oss": ThoughtMarks(
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        closings=(
            "<|channel|>final <|constrain|>json<|message|>",
            "<|channel|>final<|constrain|>json<|message|>",
            "<|channel|>final json<|message|>",
            "<|channel|>commentary<|message|>",
        ),
        forced="<|end|><|start|>assistant<|channel|>final<|message|>",
        # Without the "=", which some tokenizers join with the following name.
        calls=("<|channel|>commentary to", "<|channel|>analysis to", "<|start|>assistant to"),
        channels=_HARMONY,
    ),
}

_XML = Tags(">", "<parameter=", ">", "", "</parameter>")
_GLM = Tags("\n", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_INVOKE = Tags('">', '<parameter name="', '">', "", "</parameter>")

_NAME = r"(?P<name>[\w.-]+)"
# `name[ARGS]{…}`, with or without the mark between, and in one version with the call's id.
_MISTRAL = re.compile(_NAME + r"\s*(?:\[CALL_ID\]\w*\s*)?(?:\[ARGS\])?\s*(?=\{)")
# `name<｜tool▁sep｜>{…}`; in the previous version `function<｜tool▁sep｜>name` with the object in a fence.
_DEEPSEEK = re.compile(
    r"(?:function<｜tool▁sep｜>(?=[\w.-]+\s*```))?" + _NAME + r"(?:<｜tool▁sep｜>|\s*```(?:json)?)\s*(?=\{)"
)
_KIMI = re.compile(r"(?:functions\.)?" + _NAME + r"(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(?=\{)")

_JSON_LIST: dict[str, ReaderOf] = {"[": JsonCalls, "{": BareJsonCall}
_OBJECT, _LIST = (JsonBody(),), (JsonBody(is_list=True),)
_MISTRAL_BODIES: tuple[CallBody, ...] = (
    *_LIST,
    HeadedBody(),
    HeadedBody(("[ARGS]",)),
    HeadedBody(("[CALL_ID]", re.compile("[A-Za-z0-9]{1,32}"), "[ARGS]")),
)
_DEEPSEEK_BODIES = (
    HeadedBody(("<｜tool▁sep｜>",)),
    HeadedBody(("\n```json\n",), before=("function", "<｜tool▁sep｜>"), behind=("\n```",)),
)
_HARMONY_BODIES = tuple(
    HeadedBody((re.compile(" ?"), *format, "<|message|>"), before=("=functions.",))
    for format in ((), ("json",), ("<|constrain|>", "json"))
)
_KIMI_BODIES = (HeadedBody((re.compile(":[0-9]{1,4}"), "<|tool_call_argument_begin|>"), before=("functions.",)),)


def _xml(wrapper: Marks) -> CallMarks:
    reader = partial(TaggedCall, tags=_XML)
    return CallMarks((CallForm("<function=", reader, "</function>", _XML.shown, bodies=(_XML,)),), wrapper)


TOOL_CALLS: dict[str, CallMarks] = {
    "hermes": CallMarks((CallForm("<tool_call>", JsonCall, "</tool_call>", bodies=_OBJECT),)),
    "ernie": CallMarks((CallForm("<tool_call>", JsonCall, "</tool_call>", bodies=_OBJECT),)),
    "qwen3-coder": _xml(Marks("<tool_call>", "</tool_call>")),
    "seed-oss": _xml(Marks("<seed:tool_call>", "</seed:tool_call>")),
    "glm45": CallMarks(
        (CallForm("<tool_call>", partial(TaggedCall, tags=_GLM), "</tool_call>", _GLM.shown, bodies=(_GLM,)),)
    ),
    "minimax-m2": CallMarks(
        (CallForm('<invoke name="', partial(TaggedCall, tags=_INVOKE), "</invoke>", _INVOKE.shown, bodies=(_INVOKE,)),),
        Marks("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "llama3": CallMarks((CallForm("{", BareJsonCall, is_bare=True),), Marks("<|python_tag|>", ""), separator=";"),
    "mistral": CallMarks(
        (
            CallForm(
                "[TOOL_CALLS]",
                partial(FormatChoice, readers={**_JSON_LIST, "": partial(HeadedCall, head=_MISTRAL)}),
                inner=("[ARGS]", "[CALL_ID]"),
                bodies=_MISTRAL_BODIES,
            ),
        )
    ),
    "deepseek": CallMarks(
        (
            CallForm(
                "<｜tool▁call▁begin｜>",
                partial(HeadedCall, head=_DEEPSEEK),
                "<｜tool▁call▁end｜>",
                ("<｜tool▁sep｜>",),
                bodies=_DEEPSEEK_BODIES,
            ),
        ),
        Marks("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "kimi-k2": CallMarks(
        (
            CallForm(
                "<|tool_call_begin|>",
                partial(HeadedCall, head=_KIMI),
                "<|tool_call_end|>",
                ("<|tool_call_argument_begin|>",),
                bodies=_KIMI_BODIES,
            ),
        ),
        Marks("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "granite": CallMarks(
        (
            CallForm("<|tool_call|>", partial(FormatChoice, readers=_JSON_LIST), bodies=_LIST + _OBJECT),
            CallForm("<tool_call>", partial(FormatChoice, readers=_JSON_LIST), bodies=_LIST + _OBJECT),
        ),
        Marks("", "</tool_call>"),
    ),
    "hunyuan": CallMarks((CallForm("<tool_calls>", JsonCalls, "</tool_calls>", bodies=_LIST),)),
    "phi4-mini": CallMarks((CallForm("functools", JsonCalls),)),
    "pythonic": CallMarks((CallForm("[", PythonicCalls, is_bare=True),), Marks("<|python_start|>", "<|python_end|>")),
    "gpt-oss": CallMarks(
        (
            CallForm(
                "<|channel|>",
                partial(MessageCall, namespace="functions.", texts={"python": "code"}),
                "<|call|>",
                _HARMONY.marks,
                bodies=_HARMONY_BODIES,
                # Calls in other channels may be to the model's own tools. Without the "=", as above.
                begins="<|channel|>commentary to",
            ),
        ),
        channels=_HARMONY,
    ),
}

# Names of rows in other engines, or in the models themselves.
REASONING_ALIASES: dict[str, str] = {
    **dict.fromkeys(("deepseek-v3", "deepseek-v31", "deepseek-v32", "exaone4", "glm45", "glm-45", "glm47"), "qwen3"),
    **dict.fromkeys(("holo2", "intern-s1", "kimi-k2", "mimo", "phi4-reasoning", "qwen", "qwen35"), "qwen3"),
    **dict.fromkeys(("deepseek", "minimax-m2", "nemotron-v3", "olmo3", "qwq", "step3", "step3p5"), "deepseek-r1"),
    **dict.fromkeys(("ernie", "ernie45", "ernie-45", "ernie-45-vl-thinking", "erine-45-vl-thinking"), "ernie-x1"),
    **dict.fromkeys(("cohere-command3", "cohere-command4", "command-a"), "cohere"),
    **dict.fromkeys(("gptoss", "harmony", "openai", "openai-gptoss", "openai-gpt-oss"), "gpt-oss"),
    "ernie45-vl": "ernie-45-vl",
    "hunyuan-a13b": "hunyuan",
    "magistral": "mistral",
    "seedoss": "seed-oss",
}
TOOL_CALL_ALIASES: dict[str, str] = {
    **dict.fromkeys(("granite4", "mimo", "qwen", "qwen25", "qwen3"), "hermes"),
    **dict.fromkeys(("ernie-x1", "ernie45", "ernie-45", "ernie45-vl", "ernie-45-vl", "ernie-45-vl-thinking"), "ernie"),
    **dict.fromkeys(("qwen3coder", "qwen3-xml", "qwen3xml", "qwen35-coder", "nemotron-v3"), "qwen3-coder"),
    **dict.fromkeys(("llama", "llama3-json", "llama31", "llama32", "llama33", "llama4-json"), "llama3"),
    **dict.fromkeys(("deepseek-v3", "deepseek-v31", "deepseek-r1"), "deepseek"),
    **dict.fromkeys(("glm-45", "glm47", "glm4-moe", "glm47-moe"), "glm45"),
    **dict.fromkeys(("llama4", "llama4-pythonic"), "pythonic"),
    **dict.fromkeys(("hunyuan-a13b", "jamba"), "hunyuan"),
    **dict.fromkeys(("gptoss", "harmony", "openai", "openai-gptoss", "openai-gpt-oss"), "gpt-oss"),
    "phi4-mini-json": "phi4-mini",
    "seedoss": "seed-oss",
}


def plain_name(name: str) -> str:
    """The name in its normal form."""
    return name.strip().lower().replace("_", "-").replace(".", "")


Signs = tuple[tuple[str, tuple[str, ...]], ...]

# The first row whose signs are all in the template, or all among the special tokens, is chosen; so rows come before
# those whose signs they include.
REASONING_SIGNS: Signs = (
    ("gpt-oss", ("<|start|>", "<|channel|>", "<|message|>")),
    ("seed-oss", ("<seed:think>",)),
    ("kimi-vl", ("◁think▷",)),
    ("mistral", ("[THINK]", "[/THINK]")),
    ("cohere", ("<|START_THINKING|>", "<|END_THINKING|>")),
    ("granite", ("Here is my thought process:",)),
    ("hunyuan", ("<think>", "<answer>")),
    ("deepseek-r1", ("<｜Assistant｜>", "</think>")),
    ("ernie-x1", ("</think>", "<response>")),
    ("deepseek-r1", ("<minimax:tool_call>", "</think>")),
    ("qwen3", ("<think>", "</think>")),
)
TOOL_CALL_SIGNS: Signs = (
    ("gpt-oss", ("<|channel|>", "<|message|>", "<|call|>")),
    ("seed-oss", ("<seed:tool_call>",)),
    ("minimax-m2", ("<minimax:tool_call>",)),
    ("deepseek", ("<｜tool▁call▁begin｜>",)),
    ("kimi-k2", ("<|tool_call_begin|>",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("glm45", ("<tool_call>", "<arg_key>")),
    ("qwen3-coder", ("<tool_call>", "<function=")),
    ("ernie", ("<tool_call>", "<response>")),
    ("hermes", ("<tool_call>", "</tool_call>")),
    ("granite", ("<|tool_call|>",)),
    ("hunyuan", ("<tool_calls>", "</tool_calls>")),
    ("pythonic", ("[func_name1(",)),
    ("pythonic", ("<|python_start|>", "<|python_end|>")),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ('{"name": function name, "parameters":',)),
)


def automatic(signs: Signs, shown: str) -> str | None:
    """The row's name, or None."""
    return next((name for name, own in signs if all(sign in shown for sign in own)), None)
