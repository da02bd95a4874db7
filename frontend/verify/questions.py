"""Finds out whether the question in a body is the one that its receipt has.

Ids must be the receipt's. The text of a prompt or of what a user says must stand somewhere in the receipt's prompt, for
only the model's template knows where. White space doesn't count, since templates trim it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..requests.receipt import Receipt

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


def foreign_question(body: Mapping[str, Any], receipt: Receipt, tokenizer: "Tokenizer") -> tuple[str, Any] | None:
    """The place and the value of a question that isn't the receipt's; None if there is none."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return None if prompt == receipt.prompt_ids else ("prompt", prompt)
    texts = list(_texts(body))
    whole = _without_spaces(tokenizer.decode(receipt.prompt_ids, skip_special_tokens=False)) if texts else ""
    for place, text in texts:
        # As the tokenizer has it, which may not know each character.
        ids = tokenizer.encode(text, add_special_tokens=False)
        if _without_spaces(tokenizer.decode(ids, skip_special_tokens=False)) not in whole:
            return place, text
    return None


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(prompt := body.get("prompt"), str):
        yield "prompt", prompt
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else []):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield f"messages[{index}]", part["text"]


def _without_spaces(text: str) -> str:
    return "".join(text.split())
