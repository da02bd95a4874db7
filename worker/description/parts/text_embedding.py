"""What an encoder of texts (`families/encoders.py`) adds to its tokens' embeddings: positions, types, a norm."""

from typing import NamedTuple


class TextEmbedding(NamedTuple):
    num_positions: int = 0  # rows of the table of positions; 0: there is none
    first_position: int = 0  # the row of a text's first token
    padding_token: int | None = None  # takes the row before a text's first one wherever it stands, and no position
    num_types: int = 0  # rows of the table of types, the first of which is a single text's
