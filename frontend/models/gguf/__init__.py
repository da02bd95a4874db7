"""Translates a GGUF file into the folder of the published model: config.json, tokenizer and templates, without weights.

`translated.py` keeps such folders in Penstock's cache and makes them in a process with limits. `config.py` reads a
header with its architecture's row; `find.py` finds the files for a name.
"""
