"""Describes GGUF files for a list of models by their translated config; a tokenizer would take longer."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from ....protocol.files.gguf.link import LINK_FILE, Link
from ....protocol.processes.bounded_process import serve
from .find import GgufFiles
from .translation import Job, Translator, refusal, write_json, write_pooling


def describer() -> Translator:
    """A translator that writes only the files that a survey reads."""
    return Translator(__name__)


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from . import config  # noqa: F401 - so that memory is bounded beyond what the modules take

    return lambda job: refusal(msgspec.json.decode(job, type=Job), _write_description).encode()


def _write_description(files: GgufFiles, target: Path) -> None:
    from ....protocol.files.gguf.parts import read_model
    from .config import config_of

    model = read_model(files.parts)
    write_json(target / "config.json", config_of(model))
    write_pooling(model, target)
    write_json(target / LINK_FILE, msgspec.to_builtins(Link(list(map(str, files.parts)))))


if __name__ == "__main__":
    serve(_load)
