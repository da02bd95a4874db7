"""Holds a broken header of a GGUF file to what its reader promises: it is read, or refused in a sentence, quickly."""

import time
from pathlib import Path

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import read_header

FOLDER = "a-folder-that-no-error-names"


def is_read(path: Path, content: bytes, name: str) -> bool:
    """Whether it was read, from a file `model.gguf` in FOLDER; what breaks a promise raises an AssertionError."""
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
