"""Answers as the families of models write them, and their parts as a caller puts deltas together."""

import json
from typing import Any

from penstock.frontend.parsing import Parsing, Tools

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "exact": {"type": "boolean"},
        "code": {"oneOf": [{"type": "string", "maxLength": 3}]},
        "kind": {"enum": ["1", "2"]},
    },
    "clock": {},
}
PARIS = '{"city": "Paris", "days": [1, 2]}'
XML = "<parameter=city>\nParis\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
GLM = "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>[1, 2]</arg_value>\n"
INVOKE = '<parameter name="city">Paris</parameter>\n<parameter name="days">[1, 2]</parameter>\n'

# Of each family: how it calls `weather` for Paris and then `clock`, and how a call of it may go wrong.
CALLS: dict[str, tuple[str, str]] = {
    "hermes": (
        f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
        "<tool_call>\nweather of Paris\n</tool_call>",
    ),
    "ernie": (
        f'<tool_call>\n"name": "weather", "arguments": {PARIS}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>\n',
        '<tool_call>\n"weather"\n</tool_call>',
    ),
    "qwen3-coder": (
        f"<tool_call>\n<function=weather>\n{XML}</function>\n</tool_call>\n"
        "<tool_call>\n<function=clock>\n</function>\n</tool_call>",
        "<tool_call>\n<function>\nweather\n</function>\n</tool_call>",
    ),
    "seed-oss": (
        f"<seed:tool_call>\n<function=weather>\n{XML}</function>\n</seed:tool_call>"
        "<seed:tool_call><function=clock></function></seed:tool_call>",
        "<seed:tool_call>\nweather\n</seed:tool_call>",
    ),
    "glm45": (
        f"<tool_call>weather\n{GLM}</tool_call>\n<tool_call>clock\n</tool_call>",
        "<tool_call>the weather\n</tool_call>",
    ),
    "minimax-m2": (
        f'<minimax:tool_call>\n<invoke name="weather">\n{INVOKE}</invoke>\n<invoke name="clock">\n</invoke>\n'
        "</minimax:tool_call>",
        "<minimax:tool_call>\nweather\n</minimax:tool_call>",
    ),
    "llama3": (
        f'<|python_tag|>{{"name": "weather", "parameters": {PARIS}}}; {{"name": "clock", "parameters": {{}}}}',
        '<|python_tag|>print("weather")',
    ),
    "mistral": (
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {PARIS}}}, {{"name": "clock", "arguments": {{}}, "id": ""}}]',
        '[TOOL_CALLS] [{"weather": "Paris"}]',
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        f"{PARIS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>the weather<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "kimi-k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        f"{PARIS}<|tool_call_end|><|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>weather<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "granite": (
        f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "clock", "arguments": {{}}}}]',
        "<|tool_call|>weather",
    ),
    "hunyuan": (
        f'<tool_calls>[{{"name": "weather", "arguments": {PARIS}}},\n{{"name": "clock", "arguments": {{}}}}]\n'
        "</tool_calls>",
        "<tool_calls>weather</tool_calls>",
    ),
    "phi4-mini": (
        f'functools[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "clock", "arguments": {{}}}}]',
        "functools are tools",
    ),
    "pythonic": ('<|python_start|>[weather(city="Paris", days=[1, 2]), clock()]<|python_end|>', "[weather(Paris)]"),
    "gpt-oss": (
        f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{PARIS}<|call|>"
        "<|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>Paris<|call|>",
    ),
}
# Of each family: how it writes the thought "Hm." and the answer "Yes.".
THOUGHTS: dict[str, str] = {
    "qwen3": "<think>\nHm.\n</think>\n\nYes.",
    "deepseek-r1": "Hm.\n</think>\n\nYes.",
    "ernie-45-vl": "<think>\nHm.\n</think>\n\nYes.",
    "ernie-x1": "Hm.\n</think>\n\n\n<response>\nYes.\n</response>\n",
    "granite": "Here's my thought process:\nHm.\n\nHere is my response: Yes.",
    "mistral": "[THINK]Hm.[/THINK]Yes.",
    "hunyuan": "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>",
    "cohere": "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
    "seed-oss": "<seed:think>\nHm.</seed:think>Yes.",
    "kimi-vl": "◁think▷Hm.◁/think▷\n\nYes.",
    "gpt-oss": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
}
# What answers of any family may be made of besides its marks.
SCRAPS = (
    " ", "\n", "Hm.", "😀", "{", "}", "[", "]", ",", ";", '"', "\\", "=", "(", ")", '{"name": "f", ', '"arguments": {',
    '"parameters": {', '"a": 1', "f(a=1)", "weather", "<", "```", '{"name": "f", "arguments": {}}',
)  # fmt: skip
# What every family's right example says.
EXPECTED: list[tuple[str, Any]] = [("weather", {"city": "Paris", "days": [1, 2]}), ("clock", {})]


def broken(marks: frozenset[str]) -> list[str]:
    """Marks, whole and in halves."""
    return [piece for mark in sorted(marks) for piece in (mark, mark[: len(mark) // 2], mark[len(mark) // 2 :])]


def parsed(parsing: Parsing, *pieces: str, prompt: str = "", tools: Tools | None = None) -> dict[str, Any]:
    """Everything read from an answer that came in these pieces."""
    reader = parsing.reader(prompt, tools or {}, lambda index: f"id{index}")
    thought, text, calls = "", "", []
    for number, piece in enumerate(pieces):
        parts = reader.feed(piece, is_last=number == len(pieces) - 1)
        thought += parts.thought
        text += parts.text
        for call in parts.calls:
            if call.function.name is not None:
                calls.append([call.id, call.function.name, ""])
            calls[call.index][2] += call.function.arguments
    return {
        "thought": thought, "text": text, "calls": [tuple(call) for call in calls], "is_whole": reader.has_whole_calls,
    }  # fmt: skip


def read(parsing: Parsing, answer: str, **options: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    """Thought, text and calls of an answer that came as a whole."""
    found = parsed(parsing, answer, **options)
    return found["thought"], found["text"], [(name, json.loads(text)) for _, name, text in found["calls"]]
