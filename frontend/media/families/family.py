"""`Family`: what is asked of each family, by the helper processes and by the front end."""

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
    """The text that stands in a prompt in place of a medium's placeholder."""

    text: str  # with the row token once for each run
    runs: tuple[int, ...]  # how many rows each of them stands for


class Grid(NamedTuple):
    """Positions of one run of rows, which are times x height x width."""

    times: tuple[int, ...]  # steps of each, from the run's first position on
    height: int
    width: int


class Family(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The figures of one checkpoint. Subclasses say what follows from them."""

    encoder: MediaPlan | None = None  # what the worker takes, once it has said so

    # The texts that a template, or a prompt given as text, puts where a medium belongs.
    placeholders: ClassVar[Mapping[str, MediumKind]]
    # The token of which a medium gets one for each of its rows, by kind; a placeholder, in some families.
    row_tokens: ClassVar[Any]
    # Further tokens around media. None of them, nor a placeholder, is made of text in a conversation.
    marks: ClassVar[tuple[str, ...]] = ()
    has_grids: ClassVar[bool] = False  # rotates by time, height and width
    has_video_parts: ClassVar[bool] = True  # its chat templates turn a part {"type": "video"} into a placeholder
    # What `mm_processor_kwargs` may change.
    IMAGE_SETTINGS: ClassVar[tuple[str, ...]] = ()
    VIDEO_SETTINGS: ClassVar[tuple[str, ...]] = ()
    # Those of them that are dicts, with the names that they may have.
    SIZES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Those of them that make a medium smaller, as a refusal names them.
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
        """How many pass through the encoder's layers."""
        raise NotImplementedError

    def grids(self, medium: "DecodedMedium") -> tuple[Grid, ...]:
        """One for each run of its rows; none where positions are those of text."""
        return ()

    def fitting(self, encoder: MediaPlan) -> Self:
        """The same, which makes media smaller than the processor would where the encoder takes no larger ones."""
        return msgspec.structs.replace(self, encoder=encoder)

    def num_rows(self, medium: "DecodedMedium") -> int:
        """How many tokens of a prompt it becomes, without those around its rows."""
        return sum(self.replacement(medium).runs)

    def check_fits(self, medium: "DecodedMedium") -> None:
        """Raise `LimitError` for a medium that the encoder doesn't take."""
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
