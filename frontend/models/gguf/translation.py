"""Translates GGUF files in a process of its own: what is in a header is a stranger's, and may make a reader large.

The process reads the headers, writes the files into a folder that it is given, and answers with a refusal or none.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.fields.rules import shown
from ....protocol.files.gguf.checked_bytes import MalformedError
from ....protocol.files.gguf.header import file_name
from ....protocol.files.gguf.link import LINK_FILE, Link
from ....protocol.files.user_folders import reason
from ....protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError, serve

BOUNDS = Bounds(cpu_seconds=120, memory_bytes=3 << 30, wall_seconds=600.0)


class Job(msgspec.Struct, array_like=True):
    files: list[str]
    target: str
    mmproj: str | None = None  # a file that may have what the model sees with


class _Answer(msgspec.Struct, array_like=True):
    refusal: str  # "": there is none


def translate(files: Sequence[Path], target: Path, mmproj: Path | None = None, bounds: Bounds = BOUNDS) -> None:
    """Into an existing folder; raises a `ConfigError` of one sentence."""
    helper = BoundedProcess("gguf", __name__, bounds)
    try:
        job = Job(list(map(str, files)), str(target), None if mmproj is None else str(mmproj))
        answer = msgspec.json.decode(helper.ask(msgspec.json.encode(job)), type=_Answer)
    except JobDiedError as error:
        raise ConfigError(f"{file_name(files[0])} can't be used: reading its header {error}.") from None
    finally:
        helper.close()
    if answer.refusal:
        raise ConfigError(answer.refusal)


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from ...text import gguf  # noqa: F401 - so that memory is bounded beyond what the modules take
    from . import config  # noqa: F401

    def work(job: bytes) -> bytes:
        return msgspec.json.encode(_Answer(refusal(msgspec.json.decode(job, type=Job))))

    return work


def refusal(job: Job) -> str:
    """Do a job; the sentence that refuses it, or none."""
    first = Path(job.files[0])
    try:
        write_files(tuple(map(Path, job.files)), Path(job.target), None if job.mmproj is None else Path(job.mmproj))
    except MalformedError as error:
        return f"{file_name(first)} can't be used: it {error}."
    except PenstockError as error:
        return str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of no known form
        return f"{file_name(first)} can't be used: its metadata hold a value that no model has ({shown(str(error))})."
    except OSError as error:
        kept = f"What {file_name(first)} is translated to can't be kept: {reason(error)}."
        return f"{kept} Set PENSTOCK_CACHE to a folder with room."
    return ""


def write_files(files: tuple[Path, ...], target: Path, mmproj: Path | None = None) -> None:
    """All files of the folder. `gguf.json` names the GGUF files, and why there is no tokenizer where there is none."""
    from ....protocol.files.gguf.parts import read_model
    from ...text.gguf import end_token_ids, write_tokenizer
    from .config import config_of, generation_config_of

    model = read_model(files)
    config = config_of(model)
    link = Link(list(map(str, files)))
    if mmproj is not None and (seeing := _seeing(config, model.metadata, mmproj)) is not None:
        config, processor = seeing
        link.mmproj = str(mmproj)
        _write(target / "preprocessor_config.json", processor)
    ends = [config["eos_token_id"]] if "eos_token_id" in config else []
    try:
        write_tokenizer(model.metadata, target)
        ends = end_token_ids(model.metadata)
    except ConfigError as error:  # another one may be given
        link.no_tokenizer = str(error)
        (target / "tokenizer.json").unlink(missing_ok=True)
    _write(target / "config.json", config)
    _write(target / "generation_config.json", generation_config_of(model.metadata, ends))
    _write(target / LINK_FILE, msgspec.to_builtins(link))


def _seeing(
    config: dict[str, Any], metadata: dict[str, Any], mmproj: Path
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The config with an encoder, and its processor's; None where the encoder isn't this model's."""
    from ....protocol.files.gguf.header import read_header
    from .vision_families import EncoderMetadata, fitting_projector, with_vision

    given = EncoderMetadata(read_header(mmproj))
    try:
        if (projector := fitting_projector(given, metadata)) is None:
            return None
        return with_vision(config, given, projector, metadata), projector.processor(given)
    except MalformedError as error:
        raise ConfigError(f"{file_name(mmproj)} can't be used: it {error}.") from None


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    serve(_load)
