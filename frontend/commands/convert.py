"""Write a quantized copy of a model: as safetensors for Penstock and other engines, or as one GGUF file for llama.cpp
and programs based on it.
"""

import argparse

from ...protocol.conversion import DEFAULT_GROUP_SIZE, GGUF_KINDS
from ...protocol.errors import ConfigError
from ...protocol.files.sizes import exact_size
from ..console import logs
from ..models.conversion import checked_kind, convert_model, is_gguf_name
from .shared.termination import orderly_termination

USAGE = "MODEL OUT[.gguf] --quantization int8|int4|JSON|q8_0|q4_0|q4_k|none [options]"
_AS_IT_IS = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    parser.add_argument("out", metavar="OUT", help="new folder, or new file ending in .gguf")
    parser.add_argument(
        "--quantization",
        required=True,
        metavar="KIND",
        help='int8 or int4; or JSON by layer: {"*": "int4", "*.down_proj": null}; for GGUF '
        f"{', '.join(GGUF_KINDS)}, or none: keep the number format",
    )
    parser.add_argument(
        "--group-size",
        type=int,
        default=DEFAULT_GROUP_SIZE,
        metavar="N",
        help="group size of int4: 32, 64 (default) or 128",
    )
    parser.add_argument(
        "--tensor-parallel-size", type=int, default=1, metavar="N", help="number of ranks that will share the weights"
    )
    parser.add_argument(
        "--per-rank", action="store_true", help="write one folder per rank, cut for exactly these ranks"
    )
    parser.add_argument("--tokenizer", metavar="MODEL", help="tokenizer to use, if it isn't the model's own")
    parser.add_argument("--revision", metavar="TEXT", help="branch, tag or commit of a hub id")
    parser.add_argument("--quiet", action="store_true", help="hide progress")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    for name in ("group_size", "tensor_parallel_size"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if arguments.per_rank and arguments.tensor_parallel_size == 1:
        parser.error("--per-rank needs --tensor-parallel-size 2 or more")
    with orderly_termination():  # so that the worker removes what it has begun
        made = convert_model(
            arguments.model,
            arguments.out,
            quantization=_quantization(arguments, parser),
            group_size=arguments.group_size,
            tensor_parallel_size=arguments.tensor_parallel_size,
            per_rank=arguments.per_rank,
            tokenizer=arguments.tokenizer,
            revision=arguments.revision,
            quiet=arguments.quiet,
        )
    print(f"{made.path}: {exact_size(made.after)} of weights, {exact_size(made.before)} before")
    if made.notice:
        logs.say(f"penstock: {made.notice}", quiet=False)
    return 0


def _quantization(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> str | None:
    if arguments.quantization == _AS_IT_IS:
        return None
    try:
        return checked_kind(arguments.quantization, is_gguf=is_gguf_name(arguments.out))
    except ConfigError as error:
        parser.error(str(error))
