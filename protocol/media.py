"""Messages about pictures and videos: in a prompt, in a step's plan, and in the memory plan (see docs/sight.md).

A *medium* is one picture or video; an *entry* is the number under which workers keep the rows that its encoder made.
"""

from array import array
from collections.abc import Iterable
from typing import Literal

from .wire import Part

MediumKind = Literal["image", "video"]


class Medium(Part):
    """One picture or video of a prompt, decoded and resized for the model's encoder."""

    kind: MediumKind
    digest: bytes  # 32 bytes, a hash of everything its rows depend on
    pixels: bytes  # uint8 [frames, height, width, 3]
    shape: tuple[int, int, int]  # frames, height, width
    spans: bytes  # int32 pairs of start in the prompt and length, ascending: the positions of its rows, in order
    num_patches: int  # that pass through the encoder's layers


def num_rows(media: Iterable[Medium], kind: MediumKind) -> int:
    """The number of prompt tokens that stand for rows of its pictures, or of its videos."""
    return sum(sum(array("i", medium.spans)[1::2]) for medium in media if medium.kind == kind)


class MediaPlan(Part):
    """A model's encoder, on one rank."""

    num_rows: int  # of media that fit into the workers' memory
    row_bytes: int
    num_layers: int  # of the encoder
    most_patches: int  # of one medium
    most_of_frame: int  # that may attend to one another: for a picture, all
    frames_together: int = 1  # that make one set of rows
    num_full_layers: int = 0  # whose patches attend to a whole frame
    patch_keys: int = 1  # keys that a patch attends to in the time of its matrix products in a layer
    has_whole_spans: bool = False  # rows of one span attend to one another, so one step computes them all

    @property
    def kept_bytes(self) -> int:
        """The memory for its rows."""
        return self.num_rows * self.row_bytes


class Encode(Part):
    """Part of the work on one entry. An entry begins only when the previous one is done or dropped.

    The engine counts work in patches x layers, with attention counted as extra patches. Workers choose how far each
    share takes them, and are done at the end of the whole.
    """

    entry: int
    first: int  # of the work; 0 begins the entry
    count: int
    kind: MediumKind = "image"
    pixels: bytes = b""  # with the first part
    shape: tuple[int, int, int] = (0, 0, 0)  # likewise
    num_rows: int = 0  # likewise: rows that it will have
    work: int = 0  # likewise: of the whole entry


class MediaRows(Part):
    """Tokens of a step's row that get rows of a medium instead of their embeddings."""

    row: int  # of the step
    offset: int  # of the first such token, among the row's tokens in this step
    count: int
    entry: int
    first: int  # the entry's row for the first token
