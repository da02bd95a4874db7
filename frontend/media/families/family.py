"""`Family`: the interface of each model family, for the helper processes and the front end."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec

from ....protocol.errors import LimitError, RequestError
from ....protocol.media import MediaPlan, MediumKind

if TYPE_CHECKING:
    from PIL import Image

    from ..decoded import DecodedMedium
    from .frames import Frames, Video

Options = Mapping[str, float]


class Replacement(NamedTuple):
    """The text that replaces a medium's placeholder in a prompt."""

    text: str  # with the row token once for each run
    runs: tuple[int, ...]  # the number of rows in each run


class Grid(NamedTuple):
    """Positions of one run of rows, which has times x height x width rows."""

    times: tuple[int, ...]  # steps of each, from the run's first position on
    height: int
    width: int


class Family(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The settings of one checkpoint; subclasses derive sizes, tokens and positions."""

    encoder: MediaPlan | None = None  # the worker's encoder, once it is known

    # Placeholder texts in a template's output, or in a prompt given as text.
    placeholders: ClassVar[Mapping[str, MediumKind]]
    # By kind, the token that is repeated for each row of a medium; a placeholder, in some families.
    row_tokens: ClassVar[Any]
    # Further tokens around media. Text in a conversation never becomes one of these, or a placeholder.
    marks: ClassVar[tuple[str, ...]] = ()
    has_grids: ClassVar[bool] = False  # rotates by time, height and width
    has_video_parts: ClassVar[bool] = True  # its chat templates turn a part {"type": "video"} into a placeholder
    # The settings that `mm_processor_kwargs` may change.
    IMAGE_SETTINGS: ClassVar[tuple[str, ...]] = ()
    VIDEO_SETTINGS: ClassVar[tuple[str, ...]] = ()
    # Those that are dicts, with their possible keys.
    SIZES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Settings that make a medium smaller, for error messages.
    MAKE_SMALLER: ClassVar[Mapping[MediumKind, str]]

    # --- in the helper processes ---

    def image(self, image: "Image.Image", options: Options) -> "Frames":
        """The pixels of a picture, which is upright and RGB."""
        raise NotImplementedError

    def video(self, video: "Video", options: Options) -> "Frames":
        raise RequestError("This model sees no videos. Give single frames as images.")

    # --- in the front end ---

    @property
    def kinds(self) -> tuple[MediumKind, ...]:
        return tuple(self.row_tokens)

    def replacement(self, medium: "DecodedMedium") -> Replacement:
        raise NotImplementedError

    def num_patches(self, medium: "DecodedMedium") -> int:
        """The number of patches that pass through the encoder's layers."""
        raise NotImplementedError

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        """A grid for each run of rows; empty if positions are like those of text."""
        return ()

    def fitting(self, encoder: MediaPlan) -> Self:
        """The same settings, but with media shrunk further if the encoder has a smaller limit."""
        return msgspec.structs.replace(self, encoder=encoder)

    def num_rows(self, medium: "DecodedMedium") -> int:
        """The number of tokens that it becomes in a prompt, without those around its rows."""
        return sum(self.replacement(medium).runs)

    def check_fits(self, medium: "DecodedMedium") -> None:
        """Raise `LimitError` for a medium that is too large for the encoder."""
        if self.encoder is None:
            return
        num_patches, num_rows, num_frames = self.num_patches(medium), self.num_rows(medium), medium.shape[0]
        together = -(-num_patches * min(self.encoder.frames_together, num_frames) // num_frames)
        found = (
            (together, self.encoder.most_of_frame, "patches that see one another, of which the encoder takes"),
            (num_patches, self.encoder.most_patches, "patches, and the encoder takes"),
            (num_rows, self.encoder.num_rows, "rows, and mm_cache keeps"),
        )
        for count, most, words in found:
            if count > most:
                raise LimitError(
                    f"This {medium.kind} has {count:,} {words} {most:,}. Send a smaller one, or let the processor make "
                    f"it smaller (mm_processor_kwargs: {self.MAKE_SMALLER[medium.kind]})."
                )
