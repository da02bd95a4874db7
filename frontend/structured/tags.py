"""Structural tags: free text in which a trigger begins a tag, whose content must fit its schema.

They come in two formats: `{"structures": [{"begin", "schema", "end"}], "triggers": […]}` and `{"format": {"type":
"triggered_tags", "tags": [{"begin", "content": {"type": "json_schema", "json_schema"}, "end"}], …}}`.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import RequestError

AsSchema = Callable[[Any], dict[str, Any]]


class _Tag(NamedTuple):
    begin: str
    schema: Any
    end: str


def tags_grammar(value: Any, as_schema: AsSchema) -> str:
    """Write the grammar in Lark; schemas pass through `as_schema`."""
    tags, triggers = _read(value)
    if not tags or not triggers:
        raise RequestError("structural_tag: it needs at least one tag and one trigger.")
    rules = [
        f"start: ({' | '.join(f'tag_{number}' for number in range(len(tags)))})* rest",
        "rest: TEXT",
        "TEXT: /(.|\\n)*/",
    ]
    for number, (tag, trigger) in enumerate(zip(tags, _triggers(tags, triggers), strict=True)):
        if trigger is None:
            raise RequestError(f"structural_tag: {tag.begin!r} begins with none of the triggers {triggers}.")
        schema = json.dumps(as_schema(tag.schema), ensure_ascii=False)
        # Lazy: the free text ends where the trigger first appears.
        rules.append(f"trigger_{number}[lazy]: TEXT {lark_text(trigger)}")
        rules.append(
            f"tag_{number}: trigger_{number} {lark_text(tag.begin[len(trigger) :])} %json {schema} {lark_text(tag.end)}"
        )
    return "%llguidance {}\n" + "\n".join(rules) + "\n"


def _triggers(tags: list[_Tag], triggers: list[str]) -> Iterator[str | None]:
    """For each tag, the first trigger that it begins with. Triggers are looked up, not tried one by one: there may
    be thousands."""
    indices = {trigger: index for index, trigger in reversed(list(enumerate(triggers)))}
    lengths = sorted({len(trigger) for trigger in triggers})
    for tag in tags:
        beginnings = (tag.begin[:length] for length in lengths[: bisect_right(lengths, len(tag.begin))])
        yield min((each for each in beginnings if each in indices), key=indices.__getitem__, default=None)


def lark_text(text: str) -> str:
    """The text in Lark's syntax; unnamed characters become a regular expression."""
    if not text:
        return ""
    if text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    return "/" + "".join(c if c.isalnum() else f"\\u{{{ord(c):x}}}" for c in text) + "/"


def _read(value: Any) -> tuple[list[_Tag], list[str]]:
    try:
        if "structures" in value:
            tags = [_Tag(each["begin"], each.get("schema", True), each["end"]) for each in value["structures"]]
            return _checked(tags, list(value["triggers"]))
        form = value["format"]
        if form["type"] == "tag":
            tag = _tag(form)
            return _checked([tag], [tag.begin])
        if form["type"] != "triggered_tags":
            raise RequestError(f"structural_tag: the format {form['type']!r} is not supported; use triggered_tags.")
        return _checked([_tag(each) for each in form["tags"]], list(form["triggers"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            'structural_tag must be {"structures": [{"begin": …, "schema": …, "end": …}], "triggers": […]}, or the '
            f'same as {{"format": {{"type": "triggered_tags", …}}}}; missing or wrong: {error}.'
        ) from None


def _tag(value: Mapping[str, Any]) -> _Tag:
    content = value["content"]
    if content["type"] != "json_schema":
        raise RequestError(
            f"structural_tag: content of the type {content['type']!r} is not supported; use json_schema."
        )
    return _Tag(value["begin"], content["json_schema"], value["end"])


def _checked(tags: list[_Tag], triggers: list[str]) -> tuple[list[_Tag], list[str]]:
    texts = [*triggers, *(tag.begin for tag in tags), *(tag.end for tag in tags)]
    if not all(isinstance(text, str) for text in texts) or not all(triggers):
        raise TypeError("triggers, begin and end are strings, and no trigger is empty")
    return tags, triggers
