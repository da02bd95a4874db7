"""Renders prompts for the model: a text becomes a user's message if the model has a chat template, unless `--raw` is
set.

Token ids, and a batch's prompts for the completions endpoint, are never changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.errors import ConfigError, RequestError
from ..media.sources.parts import sources_of_prompt
from ..requests.prompts import MEDIA, Conversation
from ..session.session import Session
from .prompts import Row


class Rendering:
    def __init__(
        self, session: Session[Any], *, is_raw: bool, system: str | None, images: Sequence[bytes] = ()
    ) -> None:
        """`images` are files that are added to each text."""
        self._session = session
        self._is_templated = not is_raw and _has_template(session)
        self._system = [{"role": "system", "content": system}] if system else []
        if self._system and not self._is_templated:
            raise ConfigError("--system is for a model with a chat template, and this one has none.")
        self._images = [{"type": "image", "image": image} for image in images]
        if images and not (self._is_templated and self._session.sees):
            raise ConfigError("--image is for a model that sees and has a chat template; this one doesn't.")

    def prompt(self, row: Row) -> Any:
        """The prompt in the form that `generate` takes."""
        conversation = row.prompt if isinstance(row.prompt, Conversation) else self._conversation(row)
        if conversation is None:
            return row.prompt
        try:
            [prompt] = self._session.render_batch(
                [conversation.messages],
                chat_template=conversation.chat_template,
                tools=conversation.tools,
                template_options=conversation.template_options,
            )
        except RequestError as error:
            return error
        return prompt

    def _conversation(self, row: Row) -> Conversation | None:
        text = row.prompt.get("prompt") if isinstance(row.prompt, Mapping) else row.prompt
        has_ids = isinstance(row.prompt, Mapping) and row.prompt.get("prompt_token_ids") is not None
        # An empty text is no message; the door refuses it.
        if not self._is_templated or has_ids or row.batch is not None or not isinstance(text, str) or not text:
            return None
        content: Any = text
        if isinstance(row.prompt, Mapping) and (media := _media_parts(row.prompt)):
            content = [*media, {"type": "text", "text": text}]
        elif self._images:
            content = [*self._images, {"type": "text", "text": text}]
        return Conversation([*self._system, {"role": "user", "content": content}])


def _media_parts(prompt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Message parts for a line's media."""
    given: Any = next((prompt[name] for name in MEDIA if prompt.get(name) is not None), {})
    return [{"type": kind, kind: source} for kind, source in sources_of_prompt(given)]


def _has_template(session: Session[Any]) -> bool:
    return bool(session.config.chat_template or session.tokenizer.chat_template)
