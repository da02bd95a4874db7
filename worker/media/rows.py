"""The rows that the encoder has made of media, kept by their entries' numbers, and what a plan does with them.

A plan has some layers of an entry computed in a step; the entry's stream is kept until the last one. The engine alone
says what begins, goes on and may be forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
import torch
from torch import Tensor

from ...kernels import TokenRotation
from ...kernels.operands import PlacedRows
from ...protocol.media import Encode, MediaRows
from ...protocol.messages import StepPlan, values
from ..device import on_device
from ..kv.kv_cache import zeros
from ..plan_error import require
from .arrangement import FRAMES, Arrangement, arrangement_of, pieces_of
from .encoder_pass import EncoderPass
from .patches import patches_of
from .positions import rotation_of


@dataclass
class Piece:
    """Frames of a medium that pass through a layer together."""

    first_frame: int
    arrangement: Arrangement
    rotation: TokenRotation | None
    rows: numpy.ndarray  # int64: that it becomes
    # [P, hidden], while the encoder computes other frames.
    stream: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass
class BegunMedium:
    """An entry of which some layers are computed."""

    pieces: list[Piece]
    num_layers: int = 0


class KeptMedia:
    """Entries, on one rank: every rank encodes all of them by itself."""

    def __init__(self, encoding: EncoderPass, num_rows: int, most_at_once: int) -> None:
        config, placement = encoding.encoder.config, encoding.encoder.placement
        self.encoding = encoding
        self.config = config
        self.device = placement.device
        self.most_at_once = most_at_once  # that pass through a layer together
        self.rows = zeros((num_rows, config.row_parts * config.out_size), placement.activations, placement.device)
        self._free = list(range(num_rows))[::-1]
        self._of_entries: dict[int, numpy.ndarray] = {}  # int64: their rows
        self._begun: dict[int, BegunMedium] = {}
        self._present: Piece | None = None  # whose stream the encoder has

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.rows,)

    @torch.inference_mode()
    def apply(self, plan: StepPlan) -> None:
        """Forget what the plan drops, then compute what it encodes."""
        for entry in values(plan.dropped_entries):
            require(entry in self._of_entries, f"drops entry {entry}, which isn't there")
            self._free += self._of_entries.pop(entry).tolist()
            dropped = self._begun.pop(entry, None)
            if dropped is not None and any(piece is self._present for piece in dropped.pieces):
                self._present = None
        for encode in plan.encodes:
            self._encode(encode)

    def placed(self, media: Sequence[MediaRows], query_starts: Sequence[int]) -> PlacedRows | None:
        """Which tokens of the step get which rows."""
        if not media:
            return None
        tokens, rows = [], []
        for each in media:
            own = self._of_entries.get(each.entry)
            is_there = own is not None and each.entry not in self._begun
            require(is_there, f"asks for rows of entry {each.entry}, which isn't encoded")
            require(
                0 <= each.row < len(query_starts) - 1
                and 0 <= each.offset < each.offset + each.count
                and query_starts[each.row] + each.offset + each.count <= query_starts[each.row + 1]
                and 0 <= each.first <= each.first + each.count <= len(own),  # type: ignore[arg-type]
                f"puts {each.count} rows from {each.first} on at token {each.offset} of row {each.row}",
            )
            start = query_starts[each.row] + each.offset
            tokens.append(numpy.arange(start, start + each.count))
            rows.append(own[each.first : each.first + each.count])  # type: ignore[index]
        on_host = numpy.concatenate(tokens), numpy.concatenate(rows)
        return PlacedRows(self.rows, *(on_device(each, self.device) for each in on_host))

    def seen_ends(
        self, media: Sequence[MediaRows], query_starts: Sequence[int], context_lengths: Sequence[int]
    ) -> Tensor | None:
        """[T] int64: tokens that get rows of one span see its end, where the model has them see one another."""
        if not self.config.family.has_whole_spans:
            return None
        counts = numpy.diff(query_starts)
        firsts = numpy.array(context_lengths) - counts - query_starts[:-1]  # a token's position beyond its number
        ends = numpy.repeat(firsts, counts) + numpy.arange(1, query_starts[-1] + 1)
        for each in media:
            start = query_starts[each.row] + each.offset
            ends[start : start + each.count] = ends[start + each.count - 1]
        return torch.from_numpy(ends)

    def _encode(self, encode: Encode) -> None:
        """Attention stays within a frame, so many frames are computed piece by piece, which changes no number."""
        if encode.first_layer == 0:
            self._begin(encode)
        require(encode.entry in self._begun, f"goes on with entry {encode.entry}, which hasn't begun or is encoded")
        begun = self._begun[encode.entry]
        end = encode.first_layer + encode.num_layers
        require(
            begun.num_layers == encode.first_layer and encode.num_layers > 0 and end <= self.config.num_layers,
            f"computes layers {encode.first_layer} to {end} of entry {encode.entry}, with {begun.num_layers} done",
        )
        for piece in begun.pieces:
            self._make_present(piece)
            if encode.first_layer == 0:
                self._embed(piece, encode)
            for layer in range(encode.first_layer, end):
                self.encoding.layer(layer)
                for number in self.encoding.encoder.parts_behind(layer):
                    self._keep(piece, number, self.encoding.merged(number))
            if end == self.config.num_layers:
                self._present = None  # nobody needs its stream any more
        begun.num_layers = end
        if end == self.config.num_layers:
            del self._begun[encode.entry]

    def _begin(self, encode: Encode) -> None:
        arrangement = arrangement_of(encode.shape, self.config)
        num_rows, num_pixels = arrangement.num_rows, int(numpy.prod(encode.shape))
        require(encode.entry not in self._of_entries, f"encodes entry {encode.entry}, which is there")
        require(
            num_rows == encode.num_rows <= len(self._free) and 3 * num_pixels == len(encode.pixels),
            f"encodes {len(encode.pixels)} bytes as {encode.num_rows} rows, which make {num_rows}, with "
            f"{len(self._free)} free",
        )
        pieces = pieces_of(encode.shape, self.config, self.most_at_once)
        rows = numpy.array([self._free.pop() for _ in range(num_rows)], numpy.int64)
        self._of_entries[encode.entry] = rows
        begun, taken = BegunMedium([]), 0
        for first_frame, arranged in pieces:
            own = rows[taken : taken + arranged.num_rows]
            begun.pieces.append(Piece(first_frame, arranged, rotation_of(arranged, self.config, self.device), own))
            taken += arranged.num_rows
        self._begun[encode.entry] = begun

    def _embed(self, piece: Piece, encode: Encode) -> None:
        frame_bytes = len(encode.pixels) // encode.shape[0]
        num_frames = len(piece.arrangement.layouts[FRAMES]) * self.config.num_frames  # or less, at the end
        own = bytearray(encode.pixels[piece.first_frame * frame_bytes :][: num_frames * frame_bytes])
        pixels = torch.frombuffer(own, dtype=torch.uint8).view(-1, *encode.shape[1:], 3)
        colours = self.config.image_colours if encode.kind == "image" else self.config.video_colours
        self.encoding.embed(patches_of(pixels.to(self.device), piece.arrangement, self.config, colours))
        if (positions := self.encoding.encoder.positions(piece.arrangement)) is not None:
            self.encoding.stream.add_(positions)

    def _make_present(self, piece: Piece) -> None:
        """The encoder has the stream of these frames from now on; that of others is set aside."""
        if self._present is piece:
            return
        if self._present is not None:
            self._present.stream = self.encoding.stream.clone()
        self._present = piece
        self.encoding.begin(piece.arrangement, piece.rotation)
        if len(piece.stream):
            self.encoding.stream.copy_(piece.stream)
            piece.stream = torch.empty(0)

    def _keep(self, piece: Piece, part: int, merged: Tensor) -> None:
        """In the medium's own order."""
        rows, width = torch.from_numpy(piece.rows).to(self.device), self.config.out_size
        if piece.arrangement.order is not None:
            rows = rows[piece.arrangement.order.to(self.device)]
        self.rows[rows, part * width : (part + 1) * width] = merged.to(self.rows.dtype)
