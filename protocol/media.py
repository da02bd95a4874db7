"""What travels of pictures and videos: with a prompt, in a step's plan, and in the memory plan. docs/sight.md explains.

A *medium* is one picture or video; an *entry* is the number under which workers keep the rows that its encoder made.
"""

from array import array
from collections.abc import Iterable
from typing import Literal

from .wire import Part

MediumKind = Literal["image", "video"]


class Medium(Part):
    """One picture or video of a prompt, decoded and resized as the model's encoder wants it."""

    kind: MediumKind
    digest: bytes  # 32 bytes, of all that its rows depend on
    pixels: bytes  # uint8 [frames, height, width, 3]
    shape: tuple[int, int, int]  # frames, height, width
    spans: bytes  # int32 pairs of start in the prompt and length, ascending: where its rows stand, in their order
    num_patches: int  # that pass through the encoder's layers


def num_rows(media: Iterable[Medium], kind: MediumKind) -> int:
    """Tokens of a prompt that stand for rows of its pictures, or of its videos."""
    return sum(sum(array("i", medium.spans)[1::2]) for medium in media if medium.kind == kind)


class MediaPlan(Part):
    """What a model's encoder is, on one rank."""

    num_rows: int  # of media that the workers' memory keeps
    row_bytes: int
    num_layers: int  # of the encoder
    most_patches: int  # that one medium may have
    most_of_frame: int  # of them those that may attend to one another: of a picture all
    frames_together: int = 1  # that make the same rows
    num_full_layers: int = 0  # whose patches attend to a whole frame
    patch_keys: int = 1  # keys to which a patch attends in the time of its products in a layer
    has_whole_spans: bool = False  # rows that stand together see one another, so one step computes them all

    @property
    def kept_bytes(self) -> int:
        """Memory for its rows."""
        return self.num_rows * self.row_bytes


class Encode(Part):
    """A stretch of the work on one entry. One is begun only when the one before it is done, or dropped.

    The engine counts work in patches x layers, and the attention of a patch as so many more. Where workers are
    after which share of the whole is theirs to say; they are through at its end.
    """

    entry: int
    first: int  # of the work; 0 begins the entry
    count: int
    kind: MediumKind = "image"
    pixels: bytes = b""  # where it begins
    shape: tuple[int, int, int] = (0, 0, 0)  # likewise
    num_rows: int = 0  # likewise: that it will have
    work: int = 0  # likewise: the whole


class MediaRows(Part):
    """Tokens of a step's row that get rows of a medium instead of their embeddings."""

    row: int  # of the step
    offset: int  # of the first such token, among those that the row computes in this step
    count: int
    entry: int
    first: int  # the entry's row that the first token gets
