"""Admits prompts with pictures and videos: opens and decodes their media, and inserts them into the prompt.

A conversation with unopened media is rendered here when its turn comes, so a batch of any length has only the pictures
of a few prompts in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...protocol.errors import LimitError, PenstockError, RequestError
from ..requests.prompts import Conversation, ParsedPrompt, RenderedPrompt
from .sources.encoded_media import EncodedMedium

if TYPE_CHECKING:
    from .decoded import DecodedMedium
    from .sight import Sight

# Limits for one prompt's media, before the next client has its turn.
_MOST_SECONDS = 120.0  # of processor time: on a busy machine the same media take longer
_MOST_BYTES = 256 << 20  # decoded

# Renders a conversation with a placeholder for each medium, which is opened now.
Render = Callable[[Conversation], RenderedPrompt]


class MediaDoor:
    def __init__(self, sight: "Sight", render: Render, most_characters: int, most_tokens: int) -> None:
        self._sight = sight
        self._render = render
        self._most_characters = most_characters
        self._most_tokens = most_tokens
        self._row_tokens = sight.row_token_ids

    def placed(self, prompts: Sequence[ParsedPrompt]) -> list[ParsedPrompt]:
        """The prompts with their media inserted. Blocks until these are decoded."""
        return [self._placed(prompt) for prompt in prompts]

    def check_rows(self, token_ids: Sequence[int]) -> None:
        """Raise for a prompt without media that has tokens for media rows."""
        if not self._row_tokens.isdisjoint(token_ids):
            raise RequestError(
                "The prompt has a placeholder for a picture or video, and came without any. Give them as "
                "multimodal_data, or in the messages of a chat."
            )

    def _placed(self, prompt: ParsedPrompt) -> ParsedPrompt:
        try:
            if prompt.refusal is not None:
                return prompt
            if prompt.conversation is not None:
                prompt = self._rendered(prompt, prompt.conversation)
            is_typed = prompt.is_chat and prompt.text is not None and self._sight.is_cut(prompt.text)
            if not prompt.media and not is_typed:
                return prompt
            return self._expanded(prompt)
        except RequestError as error:
            return replace(prompt, refusal=str(error), conversation=None)
        except PenstockError:
            raise
        except RecursionError:
            return replace(prompt, refusal="The conversation is nested too deep.", conversation=None)
        except Exception as error:  # a value whose own methods fail
            refusal = f"What this prompt shows can't be read: {type(error).__name__}."
            return replace(prompt, refusal=refusal, conversation=None)

    def _rendered(self, prompt: ParsedPrompt, conversation: Conversation) -> ParsedPrompt:
        found = self._render(conversation)
        return replace(prompt, text=found.text, tools=found.tools, media=found.media, conversation=None)

    def _expanded(self, prompt: ParsedPrompt) -> ParsedPrompt:
        if prompt.text is not None and len(prompt.text) > self._most_characters:
            return prompt  # it is refused later
        encoded = prompt.opened_media()
        self._sight.check_counts(encoded)
        decoded = self._decoded(encoded)
        given = prompt.text if prompt.token_ids is None else prompt.token_ids
        expanded = self._sight.expand(given or "", decoded, is_chat=prompt.is_chat)
        return replace(prompt, text=expanded.text, token_ids=expanded.token_ids, placed=expanded)

    def _decoded(self, encoded: Sequence[EncodedMedium]) -> list["DecodedMedium"]:
        """Decode media up to the first refusal or the limit: later ones cost nothing."""
        decoded: list[DecodedMedium] = []
        num_rows = num_bytes = 0
        spent: list[float] = []  # several threads append to it
        for medium in self._sight.read(encoded, spent.append):
            if isinstance(medium, RequestError):
                raise medium
            decoded.append(medium)
            num_rows += self._sight.family.num_rows(medium)
            num_bytes += len(medium.pixels)
            if num_rows > self._most_tokens:
                raise LimitError(
                    f"The first {len(decoded)} of this prompt's {len(encoded)} pictures and videos have {num_rows:,} "
                    f"rows, and max_model_len={self._most_tokens:,}. Send fewer or smaller ones, or raise it."
                )
            if num_bytes > _MOST_BYTES:
                raise LimitError(
                    f"The pictures and videos of a prompt may have {_MOST_BYTES >> 20} MiB of pixels as the model sees "
                    "them, and these have more. Send fewer or smaller ones."
                )
            if sum(spent) > _MOST_SECONDS:
                raise LimitError(
                    f"Decoding the pictures and videos of this prompt takes more than {_MOST_SECONDS:g} s of processor "
                    "time. Send fewer or smaller ones."
                )
        return decoded
