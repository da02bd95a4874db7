"""A tiktoken file (a token in base64 and its rank on each line) as a `tokenizers` object that gives the same ids.

The file has neither the rule for splitting text into words nor the special tokens that follow: those are in the model's
own code. `SCHEMES` has them by the class in tokenizer_config.json. If that is missing or generic, the model_type of
config.json decides, or Llama 3's number of tokens; unrecognized files are refused.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.files.model_file import read_model_file, read_model_settings
from ..byte_level import CHARACTER_OF_BYTE
from .pieces import check_length, merges

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\s*(\n|\Z)")
# Generic classes, which don't determine the words.
_PLAIN_CLASSES = ("", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")

_DIGITS = r"\p{N}"
_UP_TO_THREE_DIGITS = r"\p{N}{1,3}"


def _words(digits: str) -> str:
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_KIMI = "|".join(
    (
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        _UP_TO_THREE_DIGITS,
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


class Scheme(NamedTuple):
    """The tokens and patterns that a model's own code adds to its file."""

    words: str  # a pattern
    special: tuple[str, ...] = ()  # the tokens after the file's, in the order of their ids,
    first_special: int = 0  # if they begin with this id in the vocabulary
    reserved: int = 0  # the least number of ids after the file's
    is_composed: bool = False  # text is normalized to NFC first
    end: str | None = None  # the eos_token if the settings name none


_LLAMA_3 = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>", *(f"<|reserved_special_token_{at}|>" for at in range(3, 248))),
)
_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{at}|>" for at in range(205)))

_SCHEME_OF_LLAMA_3 = Scheme(_words(_UP_TO_THREE_DIGITS), _LLAMA_3, 128_000)
SCHEMES = {
    **dict.fromkeys(("LlamaTokenizer", "LlamaTokenizerFast"), _SCHEME_OF_LLAMA_3),
    "QWenTokenizer": Scheme(_words(_DIGITS), _QWEN, 151_643, is_composed=True, end="<|endoftext|>"),
    "ChatGLM4Tokenizer": Scheme(_words(_UP_TO_THREE_DIGITS)),
    "TikTokenTokenizer": Scheme(_KIMI, reserved=256),
}
# Types with tiktoken files: earlier models of the same type have SentencePiece models.
_CLASS_OF_TYPE = {
    **dict.fromkeys(("llama", "mllama"), "LlamaTokenizer"),
    **dict.fromkeys(("kimi_k2", "kimi_k25", "kimi_linear", "kimi_vl"), "TikTokenTokenizer"),
    **dict(qwen="QWenTokenizer", chatglm="ChatGLM4Tokenizer"),
}


def is_tiktoken(path: Path) -> bool:
    with path.open("rb") as file:
        return _LINE.match(file.read(1 << 16)) is not None


def _scheme(path: Path, settings: Mapping[str, Any], num_ranks: int) -> Scheme:
    name = settings.get("tokenizer_class") or ""
    model_type = read_model_settings(path.with_name("config.json")).get("model_type")
    if name in _PLAIN_CLASSES and isinstance(model_type, str):
        name = _CLASS_OF_TYPE.get(model_type, "")
    elif name in _PLAIN_CLASSES and num_ranks == _SCHEME_OF_LLAMA_3.first_special:
        return _SCHEME_OF_LLAMA_3
    if isinstance(name, str) and name in SCHEMES:
        return SCHEMES[name]
    raise ConfigError(
        f"{path} is a tiktoken file, whose rule for splitting text into words is in the model's own code and not known "
        f"here: tokenizer_config.json has tokenizer_class={shown(settings.get('tokenizer_class'))}, known are "
        f"{', '.join(SCHEMES)}; config.json has model_type={shown(model_type)}, known are {', '.join(_CLASS_OF_TYPE)}. "
        "Give a folder with a tokenizer.json with tokenizer=…"
    )


def tiktoken_tokenizer(path: Path, settings: Mapping[str, Any]) -> tuple[tokenizers.Tokenizer, str | None]:
    """The tokenizer, and the token that ends a text if the settings name none."""
    ranks = _ranks(path)
    scheme = _scheme(path, settings, len(ranks))
    backend = tokenizers.Tokenizer(
        BPE(
            {_written(token): rank for token, rank in ranks.items()},
            [(_written(left), _written(right)) for left, right in merges(ranks, ranks.keys())],
            ignore_merges=True,  # tiktoken, too, looks up the whole word first
        )
    )
    if scheme.is_composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(scheme.words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(list(_special_tokens(len(ranks), scheme, settings)))
    return backend, scheme.end


def _ranks(path: Path) -> dict[bytes, int]:
    """The tokens in the order of their ranks."""
    content = read_model_file(path)
    try:
        ranks = dict(_lines(content))
        ranks = dict(sorted(ranks.items(), key=lambda entry: entry[1]))
        if list(ranks.values()) != list(range(len(ranks))):
            raise ValueError("its ranks are not the numbers from 0 on, each once")
        if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
            raise ValueError(f"the byte {missing[0]} is not one of its tokens")
    except ValueError as error:
        raise ConfigError(
            f"{path} can't be read as a tiktoken file: {error}. Download it again, or give a folder with a "
            "tokenizer.json with tokenizer=…"
        ) from error
    return ranks


def _lines(content: bytes) -> Iterator[tuple[bytes, int]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line:
            try:
                token, rank = line.split()
                decoded = base64.b64decode(token, validate=True)
                yield decoded, int(rank)
            except ValueError as error:
                raise ValueError(f"line {number} is not a token in base64 and its rank") from error
            check_length(decoded, f"the token of line {number}")


def _special_tokens(first: int, scheme: Scheme, settings: Mapping[str, Any]) -> Iterator[AddedToken]:
    """One token for each id after the file's, as far as the settings or the model's own code have any."""
    named = {int(token_id): token for token_id, token in (settings.get("added_tokens_decoder") or {}).items()}
    is_named = any(token_id >= first for token_id in named)
    own = scheme.special if first == scheme.first_special and not is_named else ()
    end = max(first + max(len(own), scheme.reserved), max(named, default=-1) + 1)
    for token_id in range(first, end):
        token = named.get(token_id)
        name = own[token_id - first] if token_id - first < len(own) else f"<|reserved_token_{token_id}|>"
        if isinstance(token, dict):
            options = {key: token[key] for key in ("single_word", "lstrip", "rstrip") if key in token}
            yield AddedToken(token["content"], normalized=False, special=token.get("special", True), **options)
        else:
            yield AddedToken(token or name, normalized=False, special=True)


def _written(token: bytes) -> str:
    return "".join([CHARACTER_OF_BYTE[byte] for byte in token])
