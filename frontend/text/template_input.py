"""The input of a chat template: one conversation with its tools and options; and its rendering in a template
process."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import RequestError

_MOST_REFUSAL = 2000  # characters, some of which may come from the template


class TemplateInput(msgspec.Struct):
    messages: list[Any]
    tools: list[Any] | None
    options: dict[str, Any]
    add_generation_prompt: bool = True
    sees: bool = False  # messages may have parts that stand for media


class Text(NamedTuple):
    """The conversation's text, or its refusal."""

    text: str
    is_refusal: bool
    is_too_long: bool = False


def too_long(num_characters: int, most: int) -> str:
    return f"The prompt has {num_characters:,} characters, and the limit is {most:,} (option limit_prompt_chars)."


def render_input(template: str, special_tokens: Mapping[str, str], given: TemplateInput, most_characters: int) -> Text:
    """Render one conversation. A text that is too long stays in the process: a template may write any length."""
    from ..requests.conversation_checks import check_template_options  # needed in the template process only
    from .chat import render

    options = dict(given.options)
    try:
        check_template_options(options)
        text = render(
            template,
            given.messages,
            tools=given.tools,
            documents=options.pop("documents", None),
            add_generation_prompt=given.add_generation_prompt,
            continue_final_message=options.pop("continue_final_message", False),
            special_tokens=special_tokens,
            arguments=options,
            sees=given.sees,
        )
    except RequestError as error:
        return Text(str(error)[:_MOST_REFUSAL], is_refusal=True)
    except Exception as error:  # caused by values that no template's author has thought of
        return Text(f"This conversation can't be rendered: {type(error).__name__}.", is_refusal=True)
    if len(text) > most_characters:
        return Text(too_long(len(text), most_characters), is_refusal=True, is_too_long=True)
    return Text(text, is_refusal=False)
