"""What a family's checkpoints call the parts of a layer, where that isn't what most call them. Imports no torch."""

from typing import NamedTuple


class PartNames(NamedTuple):
    attention_output: str = "o_proj"
    mlp: str = "mlp"
    gate_up_down: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")  # of the MLP
    last_norm: str = "norm"  # behind all layers


USUAL = PartNames()
LFM2_NAMES = PartNames("out_proj", "feed_forward", ("w1", "w3", "w2"), "embedding_norm")
# Of layers with an embedding of the tokens of their own: what makes a gate of the stream, and what leads back to it.
TOKEN_INPUT_PARTS = ("per_layer_input_gate", "per_layer_projection")
TOKEN_INPUT_PROJECTION = "per_layer_model_projection"  # of the first embedding, for all layers
