"""The subcommands of `penstock`, one per file: each has `USAGE`, `add_arguments(parser)` and `run(arguments, parser)`.

Begin with `..cli`, which has the table of commands and turns their errors into one line and an exit status. The parts
of `generate` are in `generation/`, those of `chat` in `repl/`, commands about the daemon in `daemon/`, and shared code
in `shared/`.
"""
