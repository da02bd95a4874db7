"""Makes of a GGUF file the folder that its model was published in: config.json, tokenizer, templates, and no weights.

`translated.py` keeps such folders in Penstock's cache and has them made in a process with limits. `config.py` reads a
header by the row of its architecture; `find.py` says which files a name stands for.
"""
