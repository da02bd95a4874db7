"""`Family`: what is asked of each family, by the helper processes and by the front end."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from ....protocol.errors import RequestError
from ....protocol.media import MediumKind

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


class Family(msgspec.Struct, tag=True, frozen=True):
    """The figures of one checkpoint. Subclasses say what follows from them."""

    # The texts that a template, or a prompt given as text, puts where a medium belongs.
    placeholders: ClassVar[Mapping[str, MediumKind]]
    # The token of which a medium gets one for each of its rows, by kind; a placeholder, in some families.
    row_tokens: ClassVar[Any]
    # Further tokens around media. None of them, nor a placeholder, is made of text in a conversation.
    marks: ClassVar[tuple[str, ...]] = ()
    has_grids: ClassVar[bool] = False  # rotates by time, height and width
    # What `mm_processor_kwargs` may change.
    IMAGE_SETTINGS: ClassVar[tuple[str, ...]] = ()
    VIDEO_SETTINGS: ClassVar[tuple[str, ...]] = ()

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
