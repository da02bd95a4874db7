"""Benchmarks: one command, `scripts/benchmark SCENARIO`, and a file for each scenario in the rooms beside this one.

A scenario is a module whose `run` does the work. Its docstring is the help, the parameters of `run` are the options. It
prints what it found and may return figures, which `--json` keeps together with the machine they were measured on.
"""
