"""`Sight`: the front end's single interface to a model's vision.

    sight = Sight.of(files.folder, tokenizer, …)        None for a model that doesn't see
    media = sight.read(encoded, spend)                  decoded in helper processes, or refused one by one
    messages = sight.split_messages(messages)           before a template renders a conversation
    expanded = sight.expand(text, media, is_chat=True)  tokens, media with their places, positions

This is light to import; the code that decodes and counts is imported with the first medium.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ConfigError, LimitError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.media import MediaPlan, MediumKind
from ...protocol.options.config import EngineConfig
from .decoded import DecodedMedium
from .families.family import Family
from .families.table import family_of
from .places import SHORT_PLACES
from .processes import MediaProcesses, ahead
from .processor_files import ProcessorFiles
from .sources.encoded_media import EncodedMedium

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer
    from .placeholders import Expanded

# Limits for one prompt, unless limit_mm_per_prompt sets them.
DEFAULT_LIMITS: dict[MediumKind, int] = {"image": 100, "video": 8}
_OPTIONS = ("mm_processor_kwargs", "limit_mm_per_prompt")
# A character without meaning. It passes through the chat template with its text; there the rendered text is tokenized
# in two pieces, neither of which is a mark.
CUT = "\ufdd0"


class Sight:
    """The vision of one model. Threads may share it."""

    def __init__(self, family: Family, tokenizer: "Tokenizer", limits: Mapping[MediumKind, int]) -> None:
        self.family = family
        self.tokenizer = tokenizer
        self.limits = dict(limits)
        self._processes = MediaProcesses(family)
        self._typed = Typed([*family.placeholders, *family.row_tokens.values(), *family.marks])

    @classmethod
    def of(
        cls,
        folder: Path,
        tokenizer: "Tokenizer",
        limit_mm_per_prompt: Mapping[str, Any] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> "Sight | None":
        """A model's vision; None if its config.json has none. Raises `ConfigError` for invalid settings."""
        family = family_of(ProcessorFiles.read(folder), mm_processor_kwargs)
        if family is None:
            return None
        if missing := [token for token in family.row_tokens.values() if tokenizer.token_to_id(token) is None]:
            raise ConfigError(
                f"The tokenizer lacks {missing[0]}, which stands for what this model sees. Use the model's own, or "
                "enable_mm=False for text alone."
            )
        return cls(family, tokenizer, _limits(limit_mm_per_prompt, family))

    @staticmethod
    def check(folder: Path, config: EngineConfig) -> list[str]:
        """Raise `ConfigError` if the options can't apply to the model in a folder, before anything is loaded. The
        returned sentences name options without effect."""
        family = None
        if config.enable_mm is not False:
            family = family_of(ProcessorFiles.read(folder), config.mm_processor_kwargs)
        if family is None and config.enable_mm:
            raise ConfigError("enable_mm=True: this model sees no pictures and no videos; leave it out.")
        idle = [] if family is not None else [name for name in _OPTIONS if getattr(config, name)]
        why = "enable_mm=False" if config.enable_mm is False else "this model sees no pictures and no videos"
        return [f"{name} has no effect: {why}." for name in idle]

    @property
    def row_token_ids(self) -> frozenset[int]:
        """The tokens for media rows: a prompt without media may not contain any."""
        ids = (self.tokenizer.token_to_id(token) for token in self.family.row_tokens.values())
        return frozenset(each for each in ids if each is not None)

    # --- decoding ---

    def check_counts(self, media: Sequence[EncodedMedium]) -> None:
        """Raise `LimitError` for more media than one prompt may have."""
        for kind, most in self.limits.items():
            count = sum(each.kind == kind for each in media)
            if count > most:
                raise LimitError(
                    f"A prompt may have {most} {kind}(s), and this one has {count} (option limit_mm_per_prompt)."
                )

    def read(
        self, media: Sequence[EncodedMedium], spend: Callable[[float], None]
    ) -> Iterator[DecodedMedium | RequestError]:
        """Decode and resize media, a few ahead of the reader; blocks. A fault of one medium becomes its own refusal.

        `spend` is called with the processor time of each, perhaps by several threads.
        """
        read = partial(self._read, spend)
        return map(read, media) if len(media) == 1 else ahead(read, media, SHORT_PLACES)

    def _read(self, spend: Callable[[float], None], medium: EncodedMedium) -> DecodedMedium | RequestError:
        if medium.kind not in self.family.kinds:
            return RequestError(f"This model sees no {medium.kind}s.")
        decoded = self._processes.decode(medium, spend)
        if isinstance(decoded, DecodedMedium):
            try:
                self.family.check_fits(decoded)
            except LimitError as error:
                return error
        return decoded

    def open(self, encoder: MediaPlan | None = None) -> None:
        """Have helper processes (again, after `close`), which start with the first media and resize them to the
        encoder's limit."""
        if encoder is not None:
            self.family = self.family.fitting(encoder)
        self._processes.close()
        self._processes = MediaProcesses(self.family)

    def close(self) -> None:
        """End the helper processes; media being decoded are refused."""
        self._processes.close()

    # --- prompts ---

    def split_typed(self, value: Any) -> Any:
        """Tools or options whose texts can't become media tokens; `expand` takes the rendered text."""
        return self._typed.cut(value)

    def split_messages(self, messages: Sequence[Any]) -> Any:
        """The same for messages, whose media are already removed; if templates drop videos, they get placeholders
        here."""
        cut = self._typed.cut(messages)
        return cut if self.family.has_video_parts else [_with_placeholders(each, self.family) for each in cut]

    @staticmethod
    def is_cut(text: str) -> bool:
        """Whether a rendered text has cuts that `split_typed` made."""
        return CUT in text

    @staticmethod
    def without_cuts(text: str) -> str:
        return text.replace(CUT, "")

    def expand(
        self, prompt: str | Sequence[int], media: Sequence[DecodedMedium], *, is_chat: bool = False
    ) -> "Expanded":
        """Replace a prompt's placeholders by media.

        `is_chat`: the text was rendered by a template from values that `split_messages` and `split_typed` gave, and has
        all its special tokens. Raises `RequestError` if placeholders and media don't match.
        """
        from .placeholders import expanded_ids, expanded_text

        if not isinstance(prompt, str):
            return expanded_ids(self.family, self.tokenizer, prompt, media)
        texts = prompt.split(CUT) if is_chat else [prompt]
        return expanded_text(self.family, self.tokenizer, texts, media, adds=not is_chat)


def _with_placeholders(message: Any, family: Family) -> Any:
    if not isinstance(message, Mapping) or not isinstance(parts := message.get("content"), (list, tuple)):
        return message
    [placeholder] = (text for text, kind in family.placeholders.items() if kind == "video")
    in_place = {"type": "text", "text": placeholder}
    return {**message, "content": [in_place if each == {"type": "video"} else each for each in parts]}


def _limits(given: Mapping[str, Any] | None, family: Family) -> dict[MediumKind, int]:
    limits = {kind: DEFAULT_LIMITS[kind] for kind in family.kinds}
    for name, most in (given or {}).items():
        if name not in ("image", "video", "audio"):
            raise ConfigError(f"limit_mm_per_prompt: {shown(name)} is none of 'image' and 'video'.")
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise ConfigError(f"limit_mm_per_prompt: {name} must be a whole number from 0 on, not {shown(most)}.")
        if name in limits:
            limits[name] = most
    return limits


# --- typed marks -----------------------------------------------------------------------------------------------------


class Typed:
    """Keeps typed text from becoming a placeholder: a text that spells one of the family's marks is split."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)))

    def cut(self, value: Any) -> Any:
        """The same value with a cut in every mark that its texts spell; values without marks stay the same objects."""
        if isinstance(value, str):
            if CUT in value:
                value = value.replace(CUT, "")
            return self._marks.sub(_cut, value) if self._marks.search(value) else value
        if isinstance(value, Mapping):
            changed: Any = {self.cut(name): self.cut(each) for name, each in value.items()}
            return value if _is_same(value.items(), changed.items()) else changed
        if isinstance(value, (list, tuple)):
            items = [self.cut(each) for each in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            return items if isinstance(value, list) else tuple(items)
        return value


def _is_same(old: Iterable[tuple[Any, Any]], new: Iterable[tuple[Any, Any]]) -> bool:
    return all(one[0] is other[0] and one[1] is other[1] for one, other in zip(old, new))


def _cut(mark: re.Match[str]) -> str:
    """Cut after the first character: the rest is no mark, whatever is around it."""
    return mark[0][:1] + CUT + mark[0][1:]
