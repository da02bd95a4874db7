"""Run ranks of a model on this machine for a tree whose front end is on another (node 0), until that tree ends. Node 0
is a script or `penstock serve` with the same --nnodes, --master-addr and key; all options of the model but its path and
this machine's devices and threads are node 0's.
"""

import argparse

from ....protocol.errors import ConfigError
from ....protocol.options.config import EngineConfig
from ...console import logs
from ...models.model_files import find_model
from ..shared.model_options import checked_engine_options
from ..shared.options import add_options, add_verbose, obey_verbose
from ..shared.termination import orderly_termination

USAGE = "MODEL --nnodes N --node-rank K --master-addr ADDRESS [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id: the model that node 0 runs")
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))
    add_verbose(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    config, options = checked_engine_options(arguments, parser)
    if config.nnodes < 2 or config.node_rank == 0:
        raise ConfigError(
            "`penstock worker` is for the other machines of a tree: it needs --nnodes of 2 or more and a --node-rank "
            "of 1 or more. Node 0 is a script, or `penstock serve`, with the same --nnodes."
        )
    if config.connect != "never":
        raise ConfigError("`penstock worker` has ranks of its own and connects to no daemon. Leave --connect out.")
    obey_verbose(arguments)
    from ...nodes.node import Node  # imports zmq

    files = find_model(config.model, config.tokenizer, config.revision, is_quiet=logs.is_quiet(config.quiet))
    with orderly_termination():
        node = Node(config, files, EngineConfig.given(options))
        try:
            node.run()
        finally:
            node.close()
    return 0
