"""Makes broken GGUF files out of right ones: octets, lengths and counts changed, pieces cut out, doubled or moved.

What a seed makes is the same everywhere. Most places are chosen among those where a number of the header stands, since
a flipped octet in a text breaks nothing. `is_read` holds each to what its reader promises: it is read, or refused in a
sentence, quickly.
"""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import read_header

from .gguf_file import Octets, Typed, gguf_bytes, zeros

FOLDER = "a-folder-that-no-error-names"
# What overflows, wraps, or asks for more than there is.
_NUMBERS = (
    *(0, 1, 2, 7, 8, 9, 31, 33, 127, 128, 255, 256, 65_535, 2**20, 4_000_001, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(2**33, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1),
)
_METADATA = [
    ("general.architecture", "llama"),
    ("general.alignment", 64),
    ("llama.block_count", 2),
    ("llama.rope.freq_base", 10000.0),
    ("llama.attention.head_count_kv", [2, 1]),
    ("llama.expert_weights_norm", True),
    ("wide", Typed("UINT64", 2**40)),
    ("octets", Typed("UINT8", [1, 2, 3])),
    ("choices", [True, False]),
    ("tokenizer.ggml.tokens", ["<s>", "a", "übel", ""]),
    ("tokenizer.ggml.scores", [0.0, -1.0, -2.0, -3.0]),
]
_TENSORS = [
    ("token_embd.weight", zeros((4, 256), "Q4_K")),
    ("blk.0.ffn_down_exps.weight", zeros((2, 3, 64), "Q8_0")),
    ("blk.0.attn_norm.weight", zeros((64,))),
    ("scale", Octets((), "F32", bytes(4))),
]


def right_file() -> bytes:
    """One with every kind of value and tensor that a header can have."""
    return gguf_bytes(_METADATA, _TENSORS, alignment=64)


def mutated(seed: int) -> bytes:
    """A broken file, or now and then one that still is right."""
    chance = random.Random(seed)
    content = bytearray(right_file())
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        chance.choice(_MUTATIONS)(content, chance)
    return bytes(content)


def _number(content: bytearray, chance: random.Random) -> None:
    """Another number where one may stand, 32 or 64 bits wide."""
    form = chance.choice(("<I", "<Q"))
    number = chance.choice(_NUMBERS) % (1 << 8 * struct.calcsize(form))
    at = chance.randrange(4, max(len(content) - 8, 5))
    content[at : at + struct.calcsize(form)] = struct.pack(form, number)


def _count(content: bytearray, chance: random.Random) -> None:
    """Another number of tensors or keys."""
    at = chance.choice((8, 16))
    content[at : at + 8] = struct.pack("<Q", chance.choice(_NUMBERS))


def _octet(content: bytearray, chance: random.Random) -> None:
    if content:
        at = chance.randrange(len(content))
        content[at] = chance.choice((chance.randrange(256), content[at] ^ 1 << chance.randrange(8)))


def _gap(content: bytearray, chance: random.Random) -> None:
    """A piece or all of the rest is missing."""
    at = chance.randrange(len(content) + 1)
    del content[at : at + chance.choice((chance.randrange(1, 40), len(content)))]


def _inserted(content: bytearray, chance: random.Random) -> None:
    """A piece stands twice, or one that means nothing is put in."""
    at = chance.randrange(len(content) + 1)
    content[at:at] = chance.choice(
        (content[at : at + chance.randrange(1, 200)], chance.randbytes(chance.randrange(1, 40)))
    )


def _near_a_name(content: bytearray, chance: random.Random) -> None:
    """Another number before or behind one of the names, where lengths, types, shapes and offsets stand."""
    names = [name for name, _ in (*_METADATA, *_TENSORS)]
    name = chance.choice(names).encode()
    found = content.find(name)
    if found >= 8:
        at = chance.choice((found - 8, *(found + len(name) + step for step in (0, 4, 8, 12, 16, 20, 24, 28))))
        form = chance.choice(("<I", "<Q"))
        number = chance.choice(_NUMBERS) % (1 << 8 * struct.calcsize(form))
        content[at : at + struct.calcsize(form)] = struct.pack(form, number)


_MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_near_a_name, _near_a_name, _near_a_name, _near_a_name, _number, _number, _count, _octet, _octet),
    *(_gap, _gap, _inserted, _inserted),
)


def is_read(path: Path, content: bytes, name: str) -> bool:
    """Read it from a file `model.gguf` in FOLDER; True if it was read. A broken promise raises an AssertionError."""
    path.write_bytes(content)
    began = time.process_time()
    try:
        for each in read_header(path).tensors:
            assert 0 <= each.offset <= each.offset + each.nbytes <= len(content), f"{name}: {each}"
    except ConfigError as error:
        said = str(error)
        assert said.startswith("model.gguf can't be used: it "), f"{name}: {said}"
        assert FOLDER not in said and "\n" not in said and len(said) < 400, f"{name}: {said}"
        return False
    finally:
        assert time.process_time() - began < 1, f"{name} takes long"
    return True
