"""`gguf.json` names the GGUF files behind a translated model folder. It is in the folder instead of weights."""

import msgspec

LINK_FILE = "gguf.json"


class Link(msgspec.Struct, omit_defaults=True):
    """The content of `gguf.json`."""

    files: list[str]  # all parts of the model, in order
    encoder: str | None = None  # the file of its vision encoder, if it has one
    no_tokenizer: str | None = None  # why there is no tokenizer
