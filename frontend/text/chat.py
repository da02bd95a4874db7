"""Renders conversations as text: the models' own chat templates, in Jinja's immutable sandbox.

Templates come from strangers. They see copies made of plain JSON types, have the same functions and filters as in
transformers, and render the same text. An error raised by a template ends the request with its message.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.files.model_file import read_model_text
from ..requests.content_parts import Parts, goes_through_parts
from ..requests.conversation_checks import REASONING, check_conversation
from ..requests.plain_types import plain
from ..requests.tool_schemas import check_tools, tool_schema
from .template_forms import other_forms

Message = Mapping[str, Any]
Chat = Sequence[Message]
KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Replaces the text of a message with an unknown role: letters that no filter changes except for their case.
_ROLE_MARK = "penstockroleprobe"
# The template's own names, which further arguments must not replace.
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
# Marks the end of the text to continue; it is rendered, found and cut off again.
_CONTINUE_MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any] | Callable[..., Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    special_tokens: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    sees: bool = False,
) -> str:
    """The text of one conversation. `arguments` go to the template by name; the caller's objects are not changed.

    For a model that `sees`, messages may have parts {"type": "image"}, which the template turns into placeholders.
    """
    arguments = dict(arguments or {})
    if taken := sorted(arguments.keys() & set(_RESERVED)):
        raise RequestError(f"{taken[0]!r} is given to the template by its own argument; leave it out of the others.")
    if continue_final_message and add_generation_prompt:
        raise RequestError("continue_final_message needs add_generation_prompt=False: both continue from the end.")
    if tools is not None:
        check_tools(tools)
    compiled = compiled_template(template)
    check_conversation(messages, sees=sees)
    chat = [_plain_message(message, compiled.takes_parts) for message in messages]
    if continue_final_message:
        last = _mark_end(chat)
    variables = {
        **(special_tokens or {}),
        **plain(arguments),
        "messages": chat,
        "tools": None if tools is None else [plain(tool_schema(tool)) for tool in tools],
        "documents": plain(documents),
        "add_generation_prompt": add_generation_prompt,
    }
    try:
        text, variables = _rendered_somehow(compiled.template, variables)
    except RequestError as error:
        raise RequestError(with_hint(str(error), chat)) from error
    check_roles(chat, lambda other: _rendered(compiled.template, {**variables, "messages": other}))
    return _cut_at_mark(text, last) if continue_final_message else text


def template_text(text_or_file: str) -> str:
    """A template as given by a person: its text, or the name of a file."""
    if "{" in text_or_file or "\n" in text_or_file:
        return text_or_file
    path = Path(os.path.expanduser(text_or_file))
    if not os.path.isfile(path):
        raise ConfigError(f"chat_template={shown(text_or_file)} is neither a template's text nor a file.")
    return read_model_text(path)


def _rendered_somehow(template: jinja2.Template, variables: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text, and the form of the conversation that the template accepted."""
    try:
        return _rendered(template, variables), variables
    except RequestError:
        for form in other_forms(variables):
            with suppress(RequestError):
                return _rendered(template, form), form
        raise


def _rendered(template: jinja2.Template, variables: dict[str, Any]) -> str:
    try:
        return template.render(**variables)
    except jinja2.TemplateError as error:
        raise RequestError(f"The chat template refuses this conversation: {error}") from error
    except MemoryError:
        raise RequestError("The chat template takes more memory for this conversation than it may.") from None
    except Exception as error:  # any fault of a stranger's template ends only this request
        raise RequestError(
            f"The chat template fails on this conversation with {type(error).__name__}: {error}"
        ) from error


# --- messages --------------------------------------------------------------------------------------------------------


def _plain_message(message: Any, takes_parts: bool) -> dict[str, Any]:
    # Clients send None for missing fields, which templates would print.
    copied = {name: value for name, value in plain(message).items() if value is not None}
    reasoning = next((copied[name] for name in REASONING if name in copied), None)
    if reasoning is not None:  # some templates read the first name, some the second
        copied = {"thinking": reasoning, **copied, "reasoning_content": reasoning}
    if isinstance(copied.get("content"), (list, tuple)):
        parts = Parts(map(_plain_part, copied["content"]))
        copied["content"] = parts if takes_parts else str(parts)
    return copied


def _plain_part(part: Any) -> dict[str, Any]:
    return {"type": "text", "text": part} if isinstance(part, str) else {"type": "text", **part}


# --- continuing the last message --------------------------------------------------------------------------------------


def _mark_end(chat: list[dict[str, Any]]) -> str:
    """Add the mark after the last message's text; returns that text."""
    content = chat[-1].get("content")
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUE_MARK
        return content
    if isinstance(content, list) and content and "text" in content[-1]:
        content[-1] = {**content[-1], "text": content[-1]["text"] + _CONTINUE_MARK}
        return str(content[-1]["text"]).removesuffix(_CONTINUE_MARK)
    raise RequestError("continue_final_message: the last message has no text to continue.")


def _cut_at_mark(text: str, last: str) -> str:
    end = text.rfind(_CONTINUE_MARK.strip())
    if end < 0 or last.strip() not in text:
        raise RequestError("continue_final_message: the chat template leaves out or changes the last message.")
    # A template that trims its messages has removed the mark's space, and would have removed the text's own.
    return text[:end] if text.startswith(_CONTINUE_MARK, end) else text[:end].rstrip()


# --- templates -------------------------------------------------------------------------------------------------------


class CompiledTemplate(NamedTuple):
    template: jinja2.Template
    takes_parts: bool  # it reads a message's content part by part


@lru_cache(maxsize=64)
def compiled_template(text: str) -> CompiledTemplate:
    with _syntax_in_words():
        template = _environment.from_string(text)
        template.globals = dict(template.globals)  # a ChainMap, which each rendering would copy key by key
        return CompiledTemplate(template, goes_through_parts(_environment.parse(text)))


def parsed_template(text: str) -> nodes.Template:
    """The template's syntax tree, without running anything: compiling would evaluate constants, of any size."""
    with _syntax_in_words():
        return _environment.parse(text)


@contextmanager
def _syntax_in_words() -> Iterator[None]:
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise RequestError(f"The chat template is not valid Jinja: {error.message} (line {error.lineno}).") from error
    except RecursionError:
        raise RequestError("The chat template is nested too deeply.") from None


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's text for training; here it is just its content."""

    tags = {"generation"}

    def parse(self, parser: "jinja2.parser.Parser") -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(jinja2.utils.Namespace):
    """A namespace without names that begin with an underscore, which lead to the interpreter's internals."""

    def __init__(*arguments: Any, **attributes: Any) -> None:  # `self` is among these: it may be an attribute, too
        own = dict(*arguments[1:], **attributes)
        for name in own:
            _refuse_underscore(name)
        jinja2.utils.Namespace.__init__(arguments[0], own)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't hold {name!r}, which begins with an underscore")


class _Dict:
    """`dict` as a function, without the class's attributes."""

    def __call__(self, *arguments: Any, **items: Any) -> dict[Any, Any]:
        return dict(*arguments, **items)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        return dict.fromkeys(*arguments)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON; unlike Jinja's own filter, HTML's characters are not escaped."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _new_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace
    )
    return environment


_environment = _new_environment()


# --- roles -----------------------------------------------------------------------------------------------------------


def check_roles(chat: Chat, render: Callable[[Chat], str]) -> None:
    """Raise `RequestError` for a role whose messages the template leaves out, as most do with unknown roles.

    The usual roles pass; for any other role a trial shows whether the template renders such a message.
    """
    unusual = list(dict.fromkeys(message["role"] for message in chat if message["role"] not in KNOWN_ROLES))
    if not unusual:
        return
    marks = {role: f"{_ROLE_MARK}{number}x" for number, role in enumerate(unusual)}
    try:
        text = render([_marked(message, marks.get(message["role"])) for message in chat]).casefold()
    except RequestError:  # it reads such a message's text in a form that the mark doesn't have
        return
    for role, mark in marks.items():
        if mark not in text:
            sentence = f"The chat template knows no role {role[:64]!r}: what such a message says would be left out."
            raise RequestError(sentence + suggestion(role, KNOWN_ROLES))


def with_hint(refusal: str, chat: Chat) -> str:
    """Add the role that was probably meant to a template's refusal."""
    unusual = (message["role"] for message in chat if message["role"] not in KNOWN_ROLES)
    hint = next(filter(None, (suggestion(role, KNOWN_ROLES) for role in unusual)), "")
    return refusal + ("." if hint and not refusal.endswith((".", "!", "?")) else "") + hint


def _marked(message: Mapping[str, Any], mark: str | None) -> Mapping[str, Any]:
    if mark is None:
        return message
    content = message["content"]
    return {**message, "content": Parts([{"type": "text", "text": mark}]) if isinstance(content, list) else mark}
