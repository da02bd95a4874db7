"""Describes GGUF files for a list of models: the config that they translate to; a tokenizer would take longer.

In a process of its own, one file after the other: what is in a header is a stranger's, and may make a reader large.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.gguf.checked_bytes import MalformedError
from ....protocol.files.gguf.header import file_name
from ....protocol.files.gguf.link import LINK_FILE
from ....protocol.processes.bounded_process import BoundedProcess, JobDiedError, serve
from .translation import BOUNDS


class _Job(msgspec.Struct, array_like=True):
    files: list[str]
    target: str


class Describer:
    """The caller's side of the process."""

    def __init__(self) -> None:
        self._helper = BoundedProcess("gguf", __name__, BOUNDS)

    def describe(self, files: Sequence[Path], target: Path) -> None:
        """Write what a survey looks at into an existing folder; raises a `ConfigError` of one sentence."""
        try:
            refusal = self._helper.ask(msgspec.json.encode(_Job(list(map(str, files)), str(target)))).decode()
        except JobDiedError as error:
            raise ConfigError(f"{file_name(files[0])} can't be used: reading its header {error}.") from None
        if refusal:
            raise ConfigError(refusal)

    def close(self) -> None:
        self._helper.close()


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from . import config  # noqa: F401 - so that memory is bounded beyond what the modules take

    return lambda job: _refusal(msgspec.json.decode(job, type=_Job)).encode()


def _refusal(job: _Job) -> str:
    """Do a job; the sentence that refuses it, or none."""
    from ....protocol.files.gguf.parts import read_model
    from .config import config_of

    files = tuple(map(Path, job.files))
    try:
        config = config_of(read_model(files))
    except MalformedError as error:
        return f"{file_name(files[0])} can't be used: it {error}."
    except PenstockError as error:
        return str(error)
    for name, content in (("config.json", config), (LINK_FILE, {"files": job.files})):
        (Path(job.target) / name).write_text(json.dumps(content), encoding="utf-8")
    return ""


if __name__ == "__main__":
    serve(_load)
