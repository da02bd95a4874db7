"""The subcommands of `penstock`, one a file: each has `USAGE`, `add_arguments(parser)` and `run(arguments, parser)`.

Begin with `..cli`, which holds the table of them and turns what they raise into one line and an exit status. What
`generate` does lies in `generation/`, what `chat` does in `repl/`, commands about the daemon in `daemon/`, and what
several use in `shared/`.
"""
