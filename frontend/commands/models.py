"""List models: the bundled ones, those in the hub's cache, and GGUF files in the folders of Ollama, LM Studio and
llama.cpp; or the given names and folders. For each it shows the size, whether the family is supported, and whether
it fits into the free memory or would run from the disk.
"""

import argparse
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...protocol.errors import ConfigError, PenstockError
from ...protocol.files.gguf.parts import SUFFIX
from ...protocol.files.sizes import size
from ...protocol.files.unreadable import pointer_in, pointer_refusal
from ...protocol.survey import SURVEYED_TOKENS, ModelSurvey, Survey
from ..console.number_rows import kind_of
from ..console.printable import aligned, on_one_line
from ..machine import ask_survey, cards
from ..models.gguf.find import is_gguf_file, no_such_file
from ..models.hub.cache import cache_root
from ..models.model_names import BUNDLED, is_stored_name, nearest_model
from ..models.pooled_model import find_pooled_model
from ..models.stores.stored_models import Listed, listed_file, stored_model, stored_models
from ..text.convert_tokenizer import has_tokenizer
from .shared.cached_models import LocalModel, bundled_models, cached_models, models_in
from .shared.gguf_models import described, gguf_in

USAGE = "[MODEL ...]"

_COUNTED = f"A model takes its weights and KV cache; it needs at least {SURVEYED_TOKENS:,} tokens of context."
_SHARE_OF_CARD = 0.9  # the default of gpu_memory_utilization


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = "name, folder or GGUF file of a model, or a folder of models; without any, all known models"
    parser.add_argument("models", metavar="MODEL", nargs="*", help=words)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """List models. Exit status 1 if none of them would run."""
    with TemporaryDirectory(prefix="penstock-models-") as made:
        asked = list(found_models(arguments.models, parser))
        found = [each for each in asked if isinstance(each, LocalModel)]
        found += described([each for each in asked if isinstance(each, Listed)], Path(made))
        if not found:
            print("There are no models: none is bundled or in the hub's cache. Give a folder, or `penstock pull` one.")
            return 1
        survey = ask_survey([model.folder for model in found], with_torch=bool(cards()))
        device = device_of(survey)
        rows: list[tuple[str, ...]] = [("model", "on disk", "family", "gives", "context", "runs here")]
        rows += [_row(model, each, device) for model, each in zip(found, survey.models, strict=True)]
    print("\n".join(aligned([tuple(map(on_one_line, row)) for row in rows], right=(1, 4))))
    print(f"\n{size(device.free)} free on {device.name}. {_COUNTED}")
    return 0 if any(row[-1].startswith("yes") for row in rows) else 1


def _named(name: str, parser: argparse.ArgumentParser) -> LocalModel:
    named = (model for model in itertools.chain(bundled_models(), cached_models()) if model.name == name)
    if (found := next(named, None)) is None:
        hint = nearest_model(name, BUNDLED, str(cache_root()))
        parser.error(f"{name} is not a folder, a bundled model, or a model in the hub's cache.{hint}")
    return found


def found_models(names: list[str], parser: argparse.ArgumentParser) -> Iterator[LocalModel | Listed]:
    """The named models; without arguments, all that are known."""
    if not names:
        yield from bundled_models()
        yield from cached_models()
        yield from stored_models()
    for name in names:
        folder = Path(os.path.expanduser(name))
        is_bundled = name in BUNDLED and BUNDLED[name].is_dir()  # bundled names are loaded first, too
        if is_stored_name(name):
            yield _stored(name)
            continue
        if is_gguf_file(folder):
            yield listed_file(folder)
            continue
        if folder.suffix == SUFFIX and not os.path.exists(folder):
            parser.error(no_such_file(folder.absolute()))
        if is_bundled or not os.path.isdir(folder):
            yield _named(name, parser)
            continue
        models: list[LocalModel | Listed] = [*models_in(folder), *gguf_in(folder)]
        if not models:
            parser.error(f"{name} holds no model: no GGUF file, nor config.json in it or in a folder directly below")
        yield from models


def _stored(name: str) -> Listed:
    try:
        return Listed(name, stored_model(name))
    except ConfigError as error:
        return Listed(name, None, str(error))


class Device(NamedTuple):
    """The device on which `device="auto"` would load a model."""

    name: str
    free: int
    is_card: bool

    def need(self, survey: ModelSurvey) -> int:
        """Without this much it can't be loaded, or has no room for a conversation of SURVEYED_TOKENS."""
        return (survey.stored_bytes if self.is_card else survey.cpu_bytes) + survey.kv_bytes

    def taken(self, survey: ModelSurvey) -> int:
        """Memory that a start takes. On a card, KV memory fills it up to `gpu_memory_utilization`."""
        return self.free if self.is_card else max(survey.taken_bytes, self.need(survey))

    def holds(self, survey: ModelSurvey) -> bool:
        return survey.refusal is None and self.need(survey) <= self.free

    def maps(self, survey: ModelSurvey) -> bool:
        """Whether a model that doesn't fit into memory runs here from the disk."""
        may_be_mapped = survey.refusal is None and survey.largest_bytes > 0 and not self.is_card
        return may_be_mapped and survey.largest_bytes + survey.kv_bytes <= self.free


def device_of(survey: Survey) -> Device:
    if survey.torch is not None and survey.torch.cards:
        card = survey.torch.cards[0]
        used = card.total_bytes - card.free_bytes
        return Device(card.name, int(_SHARE_OF_CARD * card.total_bytes) - used, is_card=True)
    return Device("this machine", survey.available_bytes, is_card=False)


def _row(model: LocalModel, survey: ModelSurvey, device: Device) -> tuple[str, ...]:
    context = f"{survey.context:,}" if survey.context else "-"
    verdict = verdict_on(model, survey, device)
    return model.name, size(model.size), survey.family or "-", _gives(model, survey), context, verdict


def _gives(model: LocalModel, survey: ModelSurvey) -> str:
    if survey.refusal is not None:
        return "-"
    try:
        pooled = find_pooled_model(model.folder, "auto")
    except PenstockError:  # its refusal stands in the last column
        return "-"
    return "text" if pooled is None else kind_of(pooled)


def verdict_on(model: LocalModel, survey: ModelSurvey, device: Device) -> str:
    """Say whether a model runs here, and how much memory it takes."""
    if refusal := _refusal(model, survey):
        return f"no: {refusal}"
    if device.holds(survey):
        with_ranks = f" with tensor_parallel_size={survey.cut_for}" if survey.cut_for else ""
        return f"yes, takes {size(device.taken(survey))}{with_ranks}"
    need = device.need(survey)
    lack = f"needs {size(need)}, {size(need - device.free)} more than are free"
    return f"yes, slowly from the disk: {lack}" if device.maps(survey) else f"no: {lack}"


def _refusal(model: LocalModel, survey: ModelSurvey) -> str:
    """Why a model can't be loaded, however much memory there is; empty if it can."""
    if model.refusal:
        return model.refusal
    if survey.refusal is not None and model.unfinished:
        return f"{size(model.unfinished)} of its weights are downloaded; `penstock pull {model.name}` resumes"
    if survey.refusal is not None:
        return survey.refusal.partition(";")[0]  # the error that `LLM` raises has the advice
    try:
        find_pooled_model(model.folder, "auto")
    except ConfigError as error:
        return str(error).removeprefix(f"{model.folder}/").rstrip(".")
    return _without_tokenizer(model)


def _without_tokenizer(model: LocalModel) -> str:
    """Why a model with valid weights can't be used nevertheless; empty if it can."""
    if model.is_gguf:  # it contains its vocabulary
        return ""
    if (pointer := pointer_in(model.folder)) is not None:
        return pointer_refusal(pointer).removeprefix(f"{model.folder}/")
    if not has_tokenizer(model.folder):
        return "it holds no tokenizer, neither tokenizer.json nor a vocabulary; give one with tokenizer=…"
    return ""
