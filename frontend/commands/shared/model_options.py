"""The options of a subcommand that runs a model on prompts, and their checks before anything starts."""

import argparse
from typing import Any

import msgspec

from ....protocol.errors import ConfigError, RequestError
from ....protocol.options.config import EngineConfig
from ....protocol.parameters.sampling import SamplingParams
from ...console.logs import is_quiet
from ...llm import LLM
from ...models.generation_config import default_params
from ...models.model_files import find_model
from .options import add_options, given


def add_model_options(parser: argparse.ArgumentParser, usual_tokens: int) -> None:
    """Add the options of sampling and of the engine, with the limit of an answer that sets none."""
    # A seed on the command line gives each prompt its own; a line of JSONL may set another.
    add_options(
        parser,
        "sampling options",
        SamplingParams,
        leave_out=("seed", "frequence_penalty", "bad_words_token_ids"),
        meanings={"max_tokens": f"maximum output tokens ({usual_tokens}, if max_length is unset)"},
    )
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def checked_options(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[EngineConfig, dict[str, Any], dict[str, Any]]:
    """The config, and the given engine and sampling options; invalid ones end the command.

    `seed` is the engine's: it gives every prompt its own seed.
    """
    options = {name: value for name, value in given(arguments, EngineConfig).items() if name != "model"}
    chosen = {name: value for name, value in given(arguments, SamplingParams).items() if name != "seed"}
    try:
        config = EngineConfig.from_options(arguments.model, **options)
        SamplingParams(**chosen)
    except (ConfigError, RequestError, TypeError) as error:
        parser.error(str(error))
    return config, options, chosen


def require_model(config: EngineConfig) -> None:
    """Check that the model exists before anything is read, written or loaded. A daemon has names of its own."""
    if config.connect == "never":
        found = find_model(config.model, config.tokenizer, config.revision, is_quiet=is_quiet(config.quiet))
        default_params(found.folder)


def with_defaults(llm: LLM, chosen: dict[str, Any]) -> SamplingParams:
    """Complete the options with the model's own defaults."""
    return msgspec.structs.replace(llm.get_default_sampling_params(), **chosen)
