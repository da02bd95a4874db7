"""The grammars of calls: of each family, whatever of its marks the tokenizer has as tokens."""

import re

from builders.cases import for_each
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from penstock.engine.grammar.matcher import source, tried
from penstock.frontend.parsing import TOOL_CALLS
from penstock.frontend.requests.tool_schemas import arguments_schema
from penstock.frontend.structured import CallGuides

CITY = {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}}
TOOLS = {
    "f": {"name": "f", "parameters": {"type": "object", "properties": CITY, "required": ["city"]}},
    "now": {"name": "now"},
    "any": {"name": "any", "strict": False, "parameters": {"type": "object", "properties": {}}},
    "hard": {"name": "hard", "parameters": {"type": "object", "unevaluatedItems": False, "properties": {"a": {}}}},
}
F = '{"name": "f", "arguments": {"city": "P"}}'
# Behind the opening mark: what may come, and what begins something that must not.
JSON = (
    [F, '{"name":"now","arguments":{}}', '\n{"name": "any", "arguments": {"q": [1]}}\n', F.replace('"f"', '"hard"')],
    ['{"name": "g', '{"name": "now", "arguments": {"', '{"name": "f", "arguments": {"q', F[:-2] + ', "days": "'],
)
LIST = ([f"[{F}]", f"[{F}, {F}]"], [F, f"[{F}, ]"])


def tagged(name: str, *, key: str, end: str) -> tuple[list[str], list[str]]:
    call = f"{name}{key.format('city')}\nP <b>\n{end}\n"
    days, unit = key.format("days"), key.format("unit")
    return [call, f"{call}{days}2{end}{unit}c{end}"], [name + days, f"{call}{days}x", f"{call}{unit}k", "g"]


XML = tagged("f>\n", key="<parameter={}>", end="</parameter>")
INVOKE = tagged('f">\n', key='<parameter name="{}">', end="</parameter>")
GLM = tagged("f\n", key="<arg_key>{}</arg_key>\n<arg_value>", end="</arg_value>")
P = '{"city": "P"}'
WRITTEN = {
    "hermes": JSON,
    "ernie": JSON,
    "granite": ([F, *LIST[0]], JSON[1]),
    "hunyuan": LIST,
    "qwen3-coder": XML,
    "seed-oss": XML,
    "minimax-m2": INVOKE,
    "glm45": (["now\n", *GLM[0]], GLM[1]),
    "mistral": ([*LIST[0], f"f[ARGS]{P}", f"f{P}", f"f[CALL_ID]a1[ARGS]{P}"], ["g[", 'now[ARGS]{"', "f[ARGS]{}"]),
    "deepseek": ([f"f<｜tool▁sep｜>{P}", f"function<｜tool▁sep｜>f\n```json\n{P}\n```"], ["g", 'now<｜tool▁sep｜>{"']),
    "kimi-k2": ([f"functions.f:0<|tool_call_argument_begin|>{P}"], ["functions.g", "f<"]),
    "gpt-oss": ([f"=functions.f <|constrain|>json<|message|>{P}", f"=functions.f<|message|>{P}"], ["=functions.g"]),
}
MARKS = sorted({mark for row in TOOL_CALLS.values() for mark in row.shown if not mark.isalpha() and len(mark) > 3})


class Bytes:
    """A vocabulary of the 256 bytes, an end token and perhaps the families' marks."""

    eos_token_id, bos_token_id = 256, None

    def __init__(self, marks: str) -> None:
        names = [] if marks == "text" else [mark for mark in MARKS if not mark.startswith(("<function", "<invoke"))]
        self.ids = {name: 257 + place for place, name in enumerate(names)}
        self.tokens = [bytes([value]) for value in range(256)] + [b"<end>"] + [name.encode() for name in names]
        self.special_token_ids = [256, *(self.ids.values() if marks == "special" else ())]
        self.is_special = self.special_token_ids.__contains__

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    def encode(self, text: str) -> list[int]:
        if not self.ids:
            return list(text.encode())
        parts = re.split(f"({'|'.join(map(re.escape, sorted(self.ids, key=len, reverse=True)))})", text)
        return [token for part in parts for token in ([self.ids[part]] if part in self.ids else part.encode())]


@for_each("family", list(WRITTEN))
@for_each("marks", ["text", "plain", "special"])
def test_a_call_names_a_tool_and_gives_it_what_its_schema_allows(marks, family):
    vocabulary, row = Bytes(marks), TOOL_CALLS[family]
    tokens = LLTokenizer(TokenizerWrapper(vocabulary), slices=[])
    good, bad = WRITTEN[family]
    guides = CallGuides(row, arguments_schema, vocabulary.encode, vocabulary.is_special).of(TOOLS)
    assert len(guides) == len([form for form in row.forms if form.bodies])
    for guide, form in zip(guides, row.forms, strict=True):
        before, after = "", form.closing or ""
        if row.wrapper.opening and len(vocabulary.encode(form.opening)) > 1:  # the wrapper's mark is looked for
            before, after = form.opening, after + row.wrapper.closing
        assert tried(guide.grammar) is None
        matcher = LLMatcher(tokens, source(guide.grammar), log_level=0)
        for text in good:
            own, ids = matcher.deep_copy(), vocabulary.encode(before + text + after)
            ids = ids[: -1 if guide.closings else None]
            assert own.consume_tokens(ids) and own.is_accepting(), f"{text} must be allowed"
        for text in bad:
            assert not matcher.deep_copy().consume_tokens(vocabulary.encode(before + text)), f"{text} must be refused"
