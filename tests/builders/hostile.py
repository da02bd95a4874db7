"""Requests that have broken other engines, or would: by kind, each with the replies that are right.

A kind has the numbers of the advisories it is drawn from; docs/security.md says of each what it has done elsewhere.
"""

import json
from dataclasses import dataclass
from typing import Any

from builders.raw_http import request

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, OLLAMA = "/v1/messages", "/api/chat"
EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CLOSED = 0  # in place of a status: the connection ends without a word

# Kind → its advisories.
ADVISORIES: dict[str, tuple[str, ...]] = {
    "numbers": ("CVE-2026-54235",),
    "too many answers": ("CVE-2024-8939", "CVE-2026-34756"),
    "token ids": ("CVE-2026-71486",),
    "checks by assert": ("CVE-2026-41523",),
    "empty prompts": ("CVE-2024-8768",),
    "templates": ("CVE-2025-61620", "CVE-2025-62426", "CVE-2026-5760", "CVE-2024-34359"),
    "grammars": (
        "CVE-2025-29770", "CVE-2025-48942", "CVE-2025-48943", "CVE-2025-48944", "CVE-2025-57809", "CVE-2025-58446",
        "CVE-2026-55574", "CVE-2026-73556",
    ),
    "calls": ("CVE-2025-9141",),
    "fetched addresses": (
        "CVE-2025-6242", "CVE-2026-24779", "CVE-2026-25960", "CVE-2026-34753", "CVE-2026-33626", "CVE-2026-73560",
        "CVE-2026-7302",
    ),
    "bombs": ("CVE-2026-22773", "CVE-2026-34755", "CVE-2026-54233", "CVE-2025-46722"),
    "pickles": (
        "CVE-2024-9052", "CVE-2024-9053", "CVE-2024-11041", "CVE-2025-29783", "CVE-2025-32444", "CVE-2025-47277",
        "CVE-2025-30165", "CVE-2025-23254", "CVE-2026-3059", "CVE-2026-3060",
    ),
    "code and weights": (
        "CVE-2025-24357", "CVE-2025-62164", "CVE-2025-66448", "CVE-2026-22807", "CVE-2026-27893", "CVE-2026-7304",
    ),
    "paths": ("CVE-2026-73555",),
    "hosts": ("CVE-2024-28224",),
    "headers": ("CVE-2025-48956", "GHSA-fh2c-86xm-pm2x"),
    "sizes": (),
    "bytes": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hostile:
    kind: str
    name: str
    sent: bytes
    right: frozenset[int]  # statuses

    @property
    def advisories(self) -> tuple[str, ...]:
        return ADVISORIES[self.kind]


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"properties": {"a": value}}
    return value


def chat(**fields: Any) -> bytes:
    return posted(CHAT, {"messages": HI, "max_tokens": 2, **fields})


def prompt(**fields: Any) -> bytes:
    return posted(COMPLETIONS, {"prompt": "hi", "max_tokens": 2, **fields})


def posted(path: str, body: Any) -> bytes:
    return request(body if isinstance(body, bytes) else json.dumps(body).encode(), path)


def image(url: str) -> bytes:
    return posted(CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})


def got(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", *lines, "Connection: close", "", "")).encode()


def doubled(line: str) -> bytes:
    return request(b"{}").replace(b"\r\n\r\n", f"\r\n{line}\r\n\r\n".encode())


_REFUSED, _EITHER, _CUT = {400}, {200, 400}, {400, 413, 431, CLOSED}

_TABLE: dict[str, dict[str, tuple[bytes, set[int]]]] = {
    "numbers": {
        "negative temperature": (prompt(temperature=-1), _REFUSED),
        "huge temperature": (prompt(temperature=1e300), _REFUSED),
        "a temperature that divides by nothing": (prompt(temperature=5e-324), {200}),
        "a NaN": (posted(COMPLETIONS, b'{"prompt": "a", "temperature": NaN}'), _REFUSED),
        "an infinity": (posted(COMPLETIONS, b'{"prompt": "a", "temperature": Infinity}'), _REFUSED),
        "a number beyond all": (posted(COMPLETIONS, b'{"prompt": "a", "temperature": 1e999}'), _REFUSED),
        "top_p below zero": (prompt(top_p=-0.1), _REFUSED),
        "top_p above one": (prompt(top_p=1.1), _REFUSED),
        "min_p above one": (prompt(min_p=2), _REFUSED),
        "top_k below minus one": (prompt(top_k=-2), _REFUSED),
        "top_k beyond an int32": (prompt(top_k=2**40), _REFUSED),
        "repetition penalty of zero": (prompt(repetition_penalty=0), _REFUSED),
        "a repetition penalty that divides by nothing": (prompt(repetition_penalty=5e-324), _EITHER),
        "huge penalty": (prompt(presence_penalty=1e9), _REFUSED),
        "negative seed": (prompt(seed=-1), _REFUSED),
        "seed beyond 63 bits": (prompt(seed=2**63), _REFUSED),
        "huge priority": (prompt(priority=2**50), _REFUSED),
        "digits without end": (posted(COMPLETIONS, b'{"prompt": "a", "seed": ' + b"9" * 100_000 + b"}"), {413}),
    },
    "too many answers": {
        "negative n": (prompt(n=-1), _REFUSED),
        "n without bound": (prompt(n=10**9), _REFUSED),
        "n times prompts without bound": (posted(COMPLETIONS, {"prompt": ["a"] * 100, "n": 100}), _REFUSED),
        "best_of without bound": (prompt(best_of=10**6), _REFUSED),
        "negative max_tokens": (prompt(max_tokens=-5), _REFUSED),
        "max_tokens beyond an int64": (prompt(max_tokens=2**80), _REFUSED),
        "negative logprobs": (prompt(logprobs=-2), _REFUSED),
        "whole vocabulary of logprobs": (prompt(logprobs=-1), _REFUSED),
        "logprobs without bound": (chat(logprobs=True, top_logprobs=10**6), _REFUSED),
        "prompt_logprobs without bound": (prompt(prompt_logprobs=10**6), _REFUSED),
        "many answers with all the logprobs there may be": (prompt(n=16, logprobs=20, max_tokens=8), {200}),
        "n-grams without bound": (prompt(no_repeat_ngram_size=10**9), _REFUSED),
    },
    "token ids": {
        "negative token id in the prompt": (posted(COMPLETIONS, {"prompt": [-1], "max_tokens": 1}), _REFUSED),
        "token id beyond the vocabulary": (posted(COMPLETIONS, {"prompt": [10**6], "max_tokens": 1}), _REFUSED),
        "stop token beyond the vocabulary": (prompt(stop_token_ids=[10**6]), _REFUSED),
        "bias of a token beyond the vocabulary": (prompt(logit_bias={"1000000": 1}), _REFUSED),
        "tokens without bound to detokenize": (posted("/detokenize", {"tokens": [1] * 200_000}), _REFUSED),
        "negative token id to embed": (posted(EMBEDDINGS, {"input": [[5, -1]]}), _REFUSED),
        "unknown tokens to detokenize": (posted("/detokenize", {"tokens": [10**9]}), _REFUSED),
        "a text without bound to tokenize": (posted("/tokenize", {"prompt": "a " * 500_000}), _REFUSED),
    },
    "checks by assert": {
        "temperature as text": (prompt(temperature="hot"), _REFUSED),
        "temperature as true": (prompt(temperature=True), _REFUSED),
        "bias of a word": (prompt(logit_bias={"word": 1}), _REFUSED),
        "bias without bound": (prompt(logit_bias={"5": 1e9}), _REFUSED),
        "min_tokens above max_tokens": (prompt(min_tokens=50), _REFUSED),
        "a mixed prompt": (posted(COMPLETIONS, {"prompt": [1, "a"], "max_tokens": 1}), _REFUSED),
        "a message without a role": (posted(CHAT, {"messages": [{"content": "x"}]}), _REFUSED),
        "an unknown field": (prompt(nonsense=True), _REFUSED),
        "a field of a private kind": (prompt(use_beam_search=True), _REFUSED),
    },
    "empty prompts": {
        "an empty prompt": (posted(COMPLETIONS, {"prompt": "", "max_tokens": 1}), _REFUSED),
        "an empty list of prompts": (posted(COMPLETIONS, {"prompt": [], "max_tokens": 1}), _REFUSED),
        "an empty list of ids": (posted(COMPLETIONS, {"prompt": [[]], "max_tokens": 1}), _REFUSED),
        "no documents": (posted(RERANK, {"query": "a", "documents": []}), _REFUSED),
        "no messages": (posted(CHAT, {"messages": []}), _REFUSED),
        "no input": (posted(RESPONSES, {"input": []}), _REFUSED),
    },
    "templates": {
        "a template of its own": (chat(chat_template="{{ ''.__class__.__mro__ }}"), _REFUSED),
        "a template by its file": (chat(chat_template="/etc/passwd"), _REFUSED),
        "a template among its arguments": (chat(chat_template_kwargs={"chat_template": "{{ 1 }}"}), _REFUSED),
        "messages among its arguments": (chat(chat_template_kwargs={"messages": []}), _REFUSED),
        "tokenize among its arguments": (chat(chat_template_kwargs={"tokenize": True}), _REFUSED),
        "a function among its arguments": (chat(chat_template_kwargs={"raise_exception": 1}), _REFUSED),
        "a dunder among its arguments": (chat(chat_template_kwargs={"__class__": 1}), _REFUSED),
        "a template in a message": (
            posted(CHAT, {"messages": [{"role": "user", "content": "{{ 7 * 7 }}"}], "max_tokens": 1}), {200},
        ),
    },
    "grammars": {
        "a schema nested without end": (chat(guided_json=nested(300)), _REFUSED),
        "a schema of a deep text": (chat(guided_json='{"a":' * 5000 + "1" + "}" * 5000), _REFUSED),
        "a schema that refers to itself": (chat(guided_json={"$ref": "#"}), _EITHER),
        "a regex that explodes": (chat(guided_regex="(a+)+" * 20 + "$"), _EITHER),
        "a regex that counts without end": (chat(guided_regex="((a{1,5000}){1,5000}){1,5000}"), _EITHER),
        "a regex without end": (chat(guided_regex="a" * 100_000), _REFUSED),
        "a regex that is none": (chat(guided_regex="(["), _REFUSED),
        "a grammar that is none": (chat(guided_grammar="start: start start"), _EITHER),
        "a grammar without end": (chat(guided_grammar="a" * 600_000), _REFUSED),
        "no choice": (chat(guided_choice=[]), _REFUSED),
        "two shapes": (chat(guided_choice=["a"], guided_regex="a"), _REFUSED),
        "a shape of a forbidden word": (chat(guided_choice=["a"], bad_words=["a"]), _EITHER),
        "an unknown response format": (chat(response_format={"type": "pickle"}), _REFUSED),
    },
    "calls": {
        "tools nested without end": (
            chat(tools=[{"type": "function", "function": {"name": "f", "parameters": nested(200)}}]), _REFUSED,
        ),
        "a tool that is not there": (
            chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), _REFUSED,
        ),
        "a call without tools": (chat(tool_choice="required"), _REFUSED),
        "a call that is code": (
            posted(CHAT, {"messages": [
                *HI,
                {"role": "assistant", "tool_calls": [
                    {"function": {"name": "f", "arguments": "__import__('os').system('id')"}},
                ]},
            ], "max_tokens": 1}), {200},
        ),
    },
    "fetched addresses": {
        "an image by its address": (image("http://10.0.0.1/"), _REFUSED),
        "an image by its file": (image("file:///etc/passwd"), _REFUSED),
        "an image to a response": (
            posted(RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "//x/"}]}]}),
            _REFUSED,
        ),
        "a picture of a message by its address": (
            posted(MESSAGES, {"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/latest"}}]}]}), _REFUSED,
        ),
        "a picture of a line by its file": (
            posted(OLLAMA, {"messages": [{"role": "user", "content": "hi", "images": ["/etc/passwd"]}]}), _REFUSED,
        ),
        "a schema of a stranger's address": (chat(guided_json={"$ref": "http://169.254.169.254/latest"}), _REFUSED),
        "a schema of a local file": (chat(guided_json={"$ref": "file:///etc/passwd"}), _REFUSED),
        "a proxy's request": (
            b"CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {400, 404, 405, CLOSED},
        ),
    },
    "bombs": {
        "a compressed body": (request(b"\x1f\x8b" + b"0" * 100, Content_Encoding="gzip"), {415}),
        "a body compressed otherwise": (request(b"0" * 100, Content_Encoding="br, deflate"), {415}),
        "an image in the request": (image("data:image/png;base64," + "A" * 100_000), _REFUSED),
    },
    "pickles": {
        "a pickle": (posted(COMPLETIONS, b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94"), _REFUSED),
        "a pickle by its media type": (request(b"\x80\x04.", Content_Type="application/x-pickle"), {415}),
        "a pickle in a field": (prompt(extra_args={"callable": "gASVHwAAAA=="}), _REFUSED),
    },
    "code and weights": {
        "remote code": (prompt(trust_remote_code=True), _REFUSED),
        "embeddings instead of a prompt": (posted(COMPLETIONS, {"prompt_embeds": "UEsDBA=="}), _REFUSED),
        "a processor of logits": (prompt(custom_logit_processor='{"callable": "8004"}'), _REFUSED),
        "processors of logits by their names": (prompt(logits_processors=["os.system"]), _REFUSED),
    },
    "paths": {
        "a model by a path": (prompt(model="../../etc/passwd"), {404}),
        "an adapter by a path": (prompt(lora_name="/etc/passwd"), _REFUSED),
        "a path out of the page": (got("/../../etc/passwd", "Host: localhost"), {404}),
        "a path out of it, hidden": (got("/%2e%2e/%2e%2e/etc/passwd", "Host: localhost"), {404}),
    },
    "hosts": {
        "no Host": (request(b"{}").replace(b"Host: localhost\r\n", b""), {403}),
        "a stranger's Host": (request(b"{}", Host="evil.example"), {403}),
        "a Host that only begins well": (request(b"{}", Host="localhost.evil.example"), {403}),
        "two Hosts": (doubled("Host: evil.example"), _REFUSED),
        "a form from another page": (request(b"prompt=a", Content_Type="application/x-www-form-urlencoded"), {415}),
        "plain text from another page": (request(b'{"prompt":"a"}', Content_Type="text/plain"), {415}),
    },
    "headers": {
        "a flood of headers": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 100_000, _CUT),
        "one endless header": (b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 1_000_000, _CUT),
        "an endless path": (got("/" + "a" * 100_000, "Host: localhost"), _CUT),
        "a form of endless boundaries": (
            request(b"--x" + b"-" * 100_000, Content_Type="multipart/form-data; boundary=x"), {415},
        ),
    },
    "sizes": {
        "thousands of stop strings": (prompt(stop=["x"] * 5000), _REFUSED),
        "an endless stop string": (prompt(stop="x" * 100_000), _REFUSED),
        "an empty stop string": (prompt(stop=""), _REFUSED),
        "thousands of bad words": (prompt(bad_words=["x"] * 5000), _REFUSED),
        "as many bad words as may be": (prompt(bad_words=[f"word {i}" for i in range(1024)]), {200}),
        "thousands of biases": (prompt(logit_bias={str(i): 1 for i in range(2000)}), _REFUSED),
        "an endless prompt": (posted(COMPLETIONS, {"prompt": "a " * 500_000, "max_tokens": 1}), _REFUSED),
        "a prompt of a million ids": (posted(COMPLETIONS, b'{"prompt": [' + b"5," * 1_000_000 + b"5]}"), _REFUSED),
        "thousands of messages": (posted(CHAT, {"messages": HI * 12_000, "max_tokens": 1}), _REFUSED),
        "thousands of tools": (chat(tools=[TOOL] * 8_000), _REFUSED),
        "millions of empty objects": (
            posted(CHAT, b'{"messages": [], "guided_json": {"a": [' + b"{}," * 2_500_000 + b"{}]}}"), {413},
        ),
        "a million names": (
            posted(CHAT, b'{"guided_json": {' + b",".join(b'"%x":1' % i for i in range(700_000)) + b"}}"), {413},
        ),
        "millions of numbers": (posted("/detokenize", b'{"tokens": [' + b"1," * 4_000_000 + b"1]}"), {413}),
        "millions of numbers to embed": (posted(EMBEDDINGS, b'{"input": [' + b"1," * 4_000_000 + b"1]}"), {413}),
        "thousands of documents": (posted(RERANK, {"query": "a", "documents": ["a"] * 50_000}), _REFUSED),
        "a text of nothing but quotes": (posted(COMPLETIONS, {"prompt": '"' * 2_000_000}), _REFUSED),
        "JSON nested without end": (posted(CHAT, b"[" * 200_000), {413}),
        "JSON nested beyond the stack": (posted(CHAT, b"[" * 50_000), _REFUSED),
        "blocks nested without end": (
            posted(MESSAGES, b'{"messages":[{"role":"user","content":'
                   + b'[{"type":"tool_result","content":' * 5_000 + b'"a"' + b"}]" * 5_000 + b"}]}"), _REFUSED,
        ),
        "thousands of names that nothing reads": (
            posted(MESSAGES, {"messages": HI, **{f"name {n}": 1 for n in range(60_000)}}), _REFUSED,
        ),
        "thousands of blocks": (
            posted(MESSAGES, {"messages": [
                {"role": "user", "content": [{"type": "document", "source": {"type": "content", "content": "a"}}]},
            ] * 6_000}), _REFUSED,
        ),
        "thousands of calls with their results": (
            posted(OLLAMA, {"messages": [
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                {"role": "tool", "content": "a"},
            ] * 5_000}), _REFUSED,
        ),
        "arguments nested without end": (
            posted(CHAT, b'{"messages":[{"role":"user","content":"a"}],"tools":' + b"[" * 50_000), _REFUSED,
        ),
        "a body that claims to be endless": (request(b"", Content_Length="99999999999"), {413}),
        "a length of too many digits": (request(b"", Content_Length="9" * 5000), {400, 413, CLOSED}),
    },
    "bytes": {
        "half a character": (posted(COMPLETIONS, b'{"prompt": "\\ud800", "max_tokens": 1}'), _EITHER),
        "a null byte": (prompt(prompt="a\0b"), {200}),
        "nothing at all": (posted(COMPLETIONS, b""), _REFUSED),
        "a list": (posted(COMPLETIONS, b"[]"), _REFUSED),
        "a negative length": (request(b"", Content_Length="-1"), {400, CLOSED}),
        "two lengths": (doubled("Content-Length: 9"), {400, CLOSED}),
        "length and chunks": (request(b"0\r\n\r\n", Transfer_Encoding="chunked"), {400, CLOSED}),
        "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, {400, CLOSED}),
        "a websocket": (got("/health", "Host: localhost", "Upgrade: websocket"), {200, 400, 426}),
    },
}  # fmt: skip

EVERY = [
    Hostile(kind, name, sent, frozenset(right))
    for kind, cases in _TABLE.items()
    for name, (sent, right) in cases.items()
]
