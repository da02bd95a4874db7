"""Show a model's details without loading it: its path, family and context, the memory it needs, whether it runs here,
and its sampling defaults or, of one that gives numbers, what is made of a text.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ...protocol.errors import PenstockError
from ...protocol.files.model_file import read_model_settings
from ...protocol.files.sizes import size
from ...protocol.files.utf8 import shown
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.survey import ModelSurvey
from ..console.number_rows import number_rows
from ..console.printable import aligned, on_one_line
from ..machine import ask_survey, cards
from ..models.generation_config import default_params
from ..models.pooled_model import PooledModel, find_pooled_model
from ..models.stores.stored_models import Listed
from ..text.tokenizer import Tokenizer
from .models import Device, device_of, found_models, verdict_on
from .shared.cached_models import LocalModel
from .shared.gguf_models import described

USAGE = "MODEL"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="name listed by `penstock models`, folder, or GGUF file")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Show the details. Exit status 1 if the model doesn't run here."""
    with TemporaryDirectory(prefix="penstock-show-") as made:
        first, *others = found_models([arguments.model], parser)
        if others:
            parser.error(f"{arguments.model} holds several models; `penstock models {arguments.model}` lists them")
        if isinstance(first, Listed):
            [model] = described([first], Path(made))
        else:
            model = first
        survey = ask_survey([model.folder], with_torch=bool(cards()))
        device, [found] = device_of(survey), survey.models
        rows = [(name, on_one_line(text)) for name, text in _rows(model, found, device)]
    print("\n".join(aligned(rows)))
    return 0 if verdict_on(model, found, device).startswith("yes") else 1


def _rows(model: LocalModel, survey: ModelSurvey, device: Device) -> Iterator[tuple[str, str]]:
    yield "model", model.name
    if not model.is_gguf:
        yield "folder", shown(model.folder)
    yield "on disk", size(model.size)
    if survey.refusal is None:
        yield "family", survey.family
        yield "dtype", survey.dtype
        yield "context", f"{survey.context:,} tokens" + (f", {survey.cut}" if survey.cut else "")
    yield "runs here", verdict_on(model, survey, device)
    if survey.refusal is None and not device.is_card:
        other_bytes = survey.taken_bytes - survey.cpu_bytes - survey.taken_kv_bytes
        pictures = f", {size(other_bytes)} for encoded pictures" if other_bytes else ""
        yield "memory", f"{size(survey.cpu_bytes)} for weights, {size(survey.taken_kv_bytes)} for KV blocks{pictures}"
    if survey.refusal is not None:
        return
    try:
        pooled = find_pooled_model(model.folder, "auto")
    except PenstockError as error:
        yield "gives", str(error)
        return
    if pooled is not None:
        yield from _rows_of_numbers(model.folder, pooled)
    if not model.is_gguf:
        yield from _rows_of_text(model.folder, pooled)


def _rows_of_numbers(folder: Path, pooled: PooledModel) -> Iterator[tuple[str, str]]:
    if pooled.longest is not None:
        yield "max tokens", f"{pooled.longest:,} of a text ({pooled.sources['longest']})"
    config = read_model_settings(folder / "config.json")
    size = config.get("hidden_size")
    hidden = size if type(size) is int else 0
    yield from number_rows(pooled, pooled.form.width(hidden), hidden)


def _rows_of_text(folder: Path, pooled: PooledModel | None) -> Iterator[tuple[str, str]]:
    """Rows about the tokenizer and the sampling defaults, or the error if they can't be read."""
    try:
        tokenizer = Tokenizer.from_pretrained(folder)
        if pooled is not None:
            yield "vocabulary", f"{len(tokenizer):,} tokens"
            return
        yield "vocabulary", f"{len(tokenizer):,} tokens; answers end at {_ends(tokenizer)}"
        yield "template", "a chat template" if tokenizer.chat_template else "none; it completes text"
        yield "sampling", _chosen(default_params(folder))
    except PenstockError as error:
        yield "tokenizer", str(error)


def _ends(tokenizer: Tokenizer) -> str:
    return ", ".join(map(tokenizer.decode_token, tokenizer.eos_token_ids)) or "no token"


def _chosen(params: SamplingParams) -> str:
    """The parameters that differ from plain sampling."""
    plain = SamplingParams()
    chosen = {
        field.name: getattr(params, field.name)
        for field in msgspec.structs.fields(SamplingParams)
        if getattr(params, field.name) != getattr(plain, field.name)
    }
    return ", ".join(f"{name}={value}" for name, value in chosen.items()) or "temperature=1.0"
