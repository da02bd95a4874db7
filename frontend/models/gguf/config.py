"""Makes config.json and generation_config.json, as published with the model, from a GGUF file's header."""

from typing import Any

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.files.gguf.architectures.common import EMBEDDING
from ....protocol.files.gguf.architectures.model_metadata import Config, ModelMetadata, architecture_of, shortest
from ....protocol.files.gguf.architectures.table import ARCHITECTURES
from ....protocol.files.gguf.parts import GgufModel
from ....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from ....protocol.parameters.sampling import DRAW, SamplingParams

# In transformers' terms: "float16" is the type that it dequantizes to.
_OF_ALL = {"dtype": "float16", "quantization_config": {"quant_method": "gguf"}}
_TOKENS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}
# Keys of configs in which only a part of each head may rotate.
_PARTLY = {"partial_rotary_factor", "rotary_dim"}
_OF_ENCODERS = ("v.", "mm.", "a.")  # prefixes of their tensors' names
_SAMPLING = {
    **{name: name for name in DRAW},
    "temperature": "temp",
    "repetition_penalty": "penalty_repeat",
}


def config_of(model: GgufModel) -> Config:
    """The config; raises `MalformedError` for metadata that can't be a model's, or that belongs to an unsupported
    family."""
    name = architecture_of(model.metadata)
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        known = f"These do: {', '.join(ARCHITECTURES)}."
        raise MalformedError(f"is of the architecture {shown(name)}, which doesn't run as GGUF", known)
    _check_encoder_apart(model)
    given = ModelMetadata(model)
    config = architecture.read(given) | _OF_ALL
    _check_heads(given, config)
    _check_vocabulary(model.metadata, config)
    return config | _token_ids(model.metadata)


def _token_ids(metadata: dict[str, Any]) -> Config:
    found = {name: metadata[key] for name, key in _TOKENS.items() if key in metadata}
    for name, value in found.items():
        if type(value) is not int or value < 0:
            raise MalformedError(f"has {_TOKENS[name]}={shown(value)} where the id of a token belongs")
    return found


def _check_encoder_apart(model: GgufModel) -> None:
    """Refuse files of Ollama's own converter, which have the encoder inside and rotary figures under its own keys."""
    if found := next((name for name in model.tensors if name.startswith(_OF_ENCODERS)), None):
        raise MalformedError(
            f"contains the vision encoder ({found}), as files of Ollama's library do",
            "Use files with a separate encoder (mmproj), such as OWNER/NAME:Q4_K_M on the hub.",
        )


def _check_heads(given: ModelMetadata, config: Config) -> None:
    """Refuse head sizes that llama.cpp has a key for but the family here doesn't support."""
    head_dim = config["head_dim"]
    if head_dim is None:  # of latents
        return
    values = given.count("attention.value_length", head_dim)
    if values not in (head_dim, config.get("global_head_dim")):
        raise MalformedError(
            f"has keys of {head_dim} numbers and values of {values}, which its family hasn't", UNSUPPORTED
        )
    rotated = given.count("rope.dimension_count", head_dim)
    if not _PARTLY.intersection(config) and rotated not in (head_dim, config.get("global_head_dim")):
        raise MalformedError(
            f"rotates {rotated} of a head's {head_dim} numbers, and all of its family's rotate", UNSUPPORTED
        )


def _check_vocabulary(metadata: dict[str, Any], config: Config) -> None:
    """Surplus rows are padding; if there are fewer rows than tokens, they belong to another model."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > config["vocab_size"]:
        raise MalformedError(
            f"has {len(tokens):,} tokens in its tokenizer, and rows of {config['vocab_size']:,} in {EMBEDDING}: they "
            "are of two models"
        )


def generation_config_of(metadata: dict[str, Any], end_tokens: list[int]) -> Config:
    """The tokens that end an answer, and the authors' sampling defaults, if the file has them."""
    keys = {name: f"general.sampling.{part}" for name, part in _SAMPLING.items()}
    found = {name: metadata[key] for name, key in keys.items() if key in metadata}
    chosen: Config = {name: shortest(each) if isinstance(each, float) else each for name, each in found.items()}
    try:
        SamplingParams(**chosen)
    except RequestError as error:
        raise MalformedError(f"recommends sampling that can't be used: {str(error).rstrip('.')}") from None
    sampling = {"do_sample": True, **chosen} if chosen else {}
    return {**_token_ids(metadata), "eos_token_id": end_tokens, **sampling}
