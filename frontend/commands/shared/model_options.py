"""The options of a subcommand that runs a model on prompts, and their checks before anything starts."""

import argparse
from collections.abc import Collection
from typing import Any

import msgspec

from ....protocol.errors import ConfigError, RequestError
from ....protocol.options.config import EngineConfig
from ....protocol.parameters.pooling import PoolingParams
from ....protocol.parameters.sampling import SamplingParams
from ...console.logs import is_quiet
from ...llm import LLM
from ...models.generation_config import default_params
from ...models.model_files import find_model
from ...models.pooled_model import find_pooled_model
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
    config, options = checked_engine_options(arguments, parser)
    chosen = {name: value for name, value in given(arguments, SamplingParams).items() if name != "seed"}
    try:
        SamplingParams(**chosen)
    except (RequestError, TypeError) as error:
        parser.error(str(error))
    return config, options, chosen


def checked_engine_options(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser
) -> tuple[EngineConfig, dict[str, Any]]:
    """The config, and the given engine options; invalid ones end the command."""
    options = {name: value for name, value in given(arguments, EngineConfig).items() if name != "model"}
    try:
        return EngineConfig.from_options(arguments.model, **options), options
    except (ConfigError, RequestError, TypeError) as error:
        parser.error(str(error))


# --- models that give numbers ----------------------------------------------------------------------------------------


def add_pooling_options(parser: argparse.ArgumentParser, leave_out: Collection[str]) -> None:
    """Add the options of what is made of a text, but for these, and of the engine."""
    add_options(parser, "options of a text", PoolingParams, leave_out=("by_token", "logprob_token_ids", *leave_out))
    add_options(parser, "engine options", EngineConfig, leave_out=("model", "seed"))


def checked_pooling_params(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> PoolingParams:
    try:
        return PoolingParams(**given(arguments, PoolingParams))
    except (RequestError, TypeError) as error:
        parser.error(str(error))


def require_numbers(config: EngineConfig, command: str) -> None:
    """Refuse a model that writes text before it is loaded. A daemon's model is known once it is attached."""
    if config.connect != "never":
        return
    found = find_model(config.model, config.tokenizer, config.revision, is_quiet=is_quiet(config.quiet))
    if find_pooled_model(found.folder, config.runner) is None:
        raise ConfigError(
            f"{config.model} writes text, and {command} takes a model that gives numbers. Use an embedding or "
            "reranking model, or open this one with --runner pooling."
        )


def require_model(config: EngineConfig) -> None:
    """Check that the model exists before anything is read, written or loaded. A daemon has names of its own."""
    if config.connect == "never":
        found = find_model(config.model, config.tokenizer, config.revision, is_quiet=is_quiet(config.quiet))
        default_params(found.folder)


def with_defaults(llm: LLM, chosen: dict[str, Any]) -> SamplingParams:
    """Complete the options with the model's own defaults."""
    return msgspec.structs.replace(llm.get_default_sampling_params(), **chosen)
