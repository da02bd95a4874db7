"""`gguf.json`, which names the GGUF files that a translated model folder stands for. It lies where weights would."""

import msgspec

LINK_FILE = "gguf.json"


class Link(msgspec.Struct, omit_defaults=True):
    """Its content."""

    files: list[str]  # all parts of the model, in order
    encoder: str | None = None  # the file with what it sees with, if it has one
    no_tokenizer: str | None = None  # why there is none, where there is none
