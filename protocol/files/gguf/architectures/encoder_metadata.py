"""Reads the header of an encoder's file (`mmproj-….gguf`) by its `clip.vision` keys, as `model_metadata.py` does for
models."""

from ....fields.rules import shown
from ..header import Header
from ..refusals import MalformedError
from .model_metadata import Config, shortest

_MOST_LAYERS = 1024
_LARGEST = 1 << 24


class EncoderMetadata:
    def __init__(self, header: Header) -> None:
        self._metadata = header.metadata
        self._shapes = {each.name: each.shape for each in header.tensors}

    @property
    def projector(self) -> str | None:
        """The projector's kind, under the key of newer or older files."""
        found = self._metadata.get("clip.projector_type", self._metadata.get("clip.vision.projector_type"))
        return found if isinstance(found, str) else None

    def count(self, key: str, default: int | None = None) -> int:
        value = self._metadata.get(f"clip.vision.{key}", default)
        if type(value) is not int or not 0 < value <= _LARGEST:
            raise MalformedError(f"has clip.vision.{key}={shown(value)} where a positive count belongs")
        return value

    @property
    def num_layers(self) -> int:
        found = self.count("block_count")
        if found > _MOST_LAYERS:
            raise MalformedError(f"has {found:,} layers, and an encoder has {_MOST_LAYERS:,} at most")
        return found

    @property
    def epsilon(self) -> float:
        value = self._metadata.get("clip.vision.attention.layer_norm_epsilon", 1e-6)
        if type(value) is not float:
            raise MalformedError(f"has an epsilon of {shown(value)} where a number belongs")
        return shortest(value)

    @property
    def colours(self) -> Config:
        names = ("image_mean", "image_std")
        found = {name: self._metadata.get(f"clip.vision.{name}") for name in names}
        for name, value in found.items():
            if not isinstance(value, list) or len(value) != 3 or not all(type(each) is float for each in value):
                raise MalformedError(f"has clip.vision.{name}={shown(value)} where three numbers belong")
        return {name: [shortest(each) for each in value] for name, value in found.items() if value is not None}

    @property
    def width(self) -> int:
        """The width of the inner layer, from its matrix: not every converter wrote it."""
        hidden = self.count("embedding_length")
        shape = self._shapes.get("v.blk.0.ffn_up.weight", ())
        if len(shape) != 2 or hidden not in shape:
            raise MalformedError("has no matrix v.blk.0.ffn_up.weight of the width of its stream")
        return shape[1] if shape[0] == hidden else shape[0]

    def rows(self, name: str) -> int:
        shape = self._shapes.get(name, ())
        if len(shape) != 2:
            raise MalformedError(f"has no matrix {name}")
        return shape[0]

    @property
    def taps(self) -> list[int]:
        """Layers whose outputs feed further parts of the rows."""
        names = (f"v.deepstack.{layer}.fc1.weight" for layer in range(self.num_layers))
        return [layer for layer, name in enumerate(names) if name in self._shapes]

    @property
    def full_layers(self) -> list[int]:
        """Layers that attend to a whole picture: the last of each group of `n_wa_pattern`."""
        every = self.count("n_wa_pattern")
        return list(range(every - 1, self.num_layers, every))
