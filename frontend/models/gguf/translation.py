"""Translates GGUF files in a separate process: a stranger's header may make a reader use much memory.

The process reads the headers, writes the files into a given folder, and answers with an error message or nothing.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.fields.rules import shown
from ....protocol.files.gguf.link import LINK_FILE, Link
from ....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError, file_name
from ....protocol.files.user_folders import reason
from ....protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError, serve
from .find import GgufFiles

if TYPE_CHECKING:
    from ....protocol.files.gguf.parts import GgufModel

BOUNDS = Bounds(cpu_seconds=120, memory_bytes=3 << 30, wall_seconds=600.0)


class Job(msgspec.Struct, array_like=True):
    """Files to read, and an existing folder to write into."""

    parts: list[str]
    encoders: list[str]
    target: str
    parameters: str | None = None

    @classmethod
    def of(cls, files: GgufFiles, target: Path) -> "Job":
        parameters = None if files.parameters is None else str(files.parameters)
        return cls(list(map(str, files.parts)), list(map(str, files.encoders)), str(target), parameters)

    @property
    def files(self) -> GgufFiles:
        parameters = None if self.parameters is None else Path(self.parameters)
        return GgufFiles(tuple(map(Path, self.parts)), tuple(map(Path, self.encoders)), parameters)


def translate(files: GgufFiles, target: Path, bounds: Bounds = BOUNDS) -> None:
    """Translate into an existing folder; raises a `ConfigError` of one sentence."""
    with closing(Translator(__name__, bounds)) as translator:
        translator.translate(files, target)


class Translator:
    """The caller's side of a process that does such jobs, one after another; the process runs `module`."""

    def __init__(self, module: str, bounds: Bounds = BOUNDS) -> None:
        self._helper = BoundedProcess("gguf", module, bounds)

    def translate(self, files: GgufFiles, target: Path) -> None:
        try:
            refusal = self._helper.ask(msgspec.json.encode(Job.of(files, target))).decode()
        except JobDiedError as error:
            raise ConfigError(
                f"{file_name(files.parts[0])} can't be used: reading its header {error}. {UNSUPPORTED}"
            ) from None
        if refusal:
            raise ConfigError(refusal)

    def close(self) -> None:
        self._helper.close()


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from ...text import gguf  # noqa: F401 - so that memory is bounded beyond what the modules take
    from . import config, stored_parameters  # noqa: F401

    return lambda job: refusal(msgspec.json.decode(job, type=Job), write_files).encode()


def refusal(job: Job, write: Callable[[GgufFiles, Path], None]) -> str:
    """Do a job; returns an error message, or none."""
    first = job.files.parts[0]
    try:
        write(job.files, Path(job.target))
    except MalformedError as error:
        return str(error.said_of(first))
    except PenstockError as error:
        return str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of unknown kinds
        malformed = MalformedError(f"has a value in its metadata that no model has ({shown(str(error))})")
        return str(malformed.said_of(first))
    except OSError as error:
        kept = f"What {file_name(first)} is translated to can't be kept: {reason(error)}."
        return f"{kept} Set PENSTOCK_CACHE to a folder with room."
    return ""


def write_files(files: GgufFiles, target: Path) -> None:
    """Write all files of the folder. `gguf.json` names the GGUF files and, if there is no tokenizer, the reason."""
    from ....protocol.files.gguf.parts import read_model
    from ...text.gguf import end_token_ids, write_tokenizer
    from .config import config_of, generation_config_of
    from .stored_parameters import with_stored_parameters

    model = read_model(files.parts)
    config = config_of(model)
    link = Link(list(map(str, files.parts)))
    if (seeing := _seeing(config, model.metadata, files.encoders)) is not None:
        config = seeing.config
        link.encoder = str(seeing.encoder)
        write_json(target / "preprocessor_config.json", seeing.processor)
    ends = [config["eos_token_id"]] if "eos_token_id" in config else []
    tokens = None
    try:
        tokens = write_tokenizer(model.metadata, target)
        ends = end_token_ids(tokens)
    except ValueError as error:  # another one may be given
        link.no_tokenizer = (
            f"The tokenizer in {file_name(files.parts[0])} can't be used: {error}. Give the original model's folder or "
            "hub id with tokenizer=…"
        )
        (target / "tokenizer.json").unlink(missing_ok=True)
    write_json(target / "config.json", config)
    write_pooling(model, target)
    generation = generation_config_of(model.metadata, ends)
    if files.parameters is not None:
        generation = with_stored_parameters(generation, files.parameters, tokens)
    write_json(target / "generation_config.json", generation)
    write_json(target / LINK_FILE, msgspec.to_builtins(link))


def write_pooling(model: "GgufModel", target: Path) -> None:
    """Write the files that sentence-transformers would have beside a model that is pooled; llama.cpp gives vectors of
    length 1."""
    from ....protocol.files.gguf.architectures.model_metadata import ModelMetadata
    from ....protocol.files.gguf.architectures.numbers import dense_widths, pooling_of

    given = ModelMetadata(model)
    if (pooling := pooling_of(given)) is None:
        return
    widths = dense_widths(given)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(widths), "Normalize"]
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds[1:], 1))]
    configs: list[dict[str, Any]] = [{"pooling_mode": pooling}]
    configs += [{"out_features": width, "tensor": name} for name, width in widths.items()]
    modules = [{"idx": place, "path": path, "type": kind} for place, (path, kind) in enumerate(zip(paths, kinds))]
    write_json(target / "modules.json", modules)
    for path, config in zip(paths[1:], configs):
        (target / path).mkdir()
        write_json(target / path / "config.json", config)


class _Seeing(NamedTuple):
    """A model with its vision encoder."""

    encoder: Path
    config: dict[str, Any]  # of both
    processor: dict[str, Any]


def _seeing(config: dict[str, Any], metadata: dict[str, Any], encoders: Iterable[Path]) -> _Seeing | None:
    """Combine with the first of these encoders that fits the model; None if none does."""
    from ....protocol.files.gguf.architectures.encoder_metadata import EncoderMetadata
    from ....protocol.files.gguf.architectures.encoders import fitting_projector, may_see, with_vision
    from ....protocol.files.gguf.header import read_header

    refused: ConfigError | None = None
    for encoder in encoders if may_see(metadata) else ():
        try:
            given = EncoderMetadata(read_header(encoder))
            if (projector := fitting_projector(given, metadata)) is not None:
                both = with_vision(config, given, projector, metadata)
                return _Seeing(encoder, both, projector.processor(given))
        except MalformedError as error:
            refused = refused or error.said_of(encoder)
        except ConfigError as error:
            refused = refused or error
    if refused is not None:  # it may have been the right one
        raise refused
    return None


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    serve(_load)
