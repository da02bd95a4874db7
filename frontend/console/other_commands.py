"""Suggests a command of `penstock` to those who type Ollama's, LM Studio's or vLLM's. Light to import."""

_MODELS = "`penstock models` lists the models that are here, `penstock ps` those that a daemon has loaded."
_TALK = '`penstock chat MODEL` talks with a model, `penstock generate MODEL "…"` answers one prompt.'
_PULL = "`penstock pull ID` downloads a model, as does any command that names one."
_REMOVE = "`penstock rm ID` removes a downloaded model."
_START = "`penstock start MODEL` serves a model in the background, `penstock serve MODEL` in the foreground."
_UNLOAD = "A model that nobody asks is unloaded by itself (--keep-alive); `penstock stop` ends the daemon and all."

# A word in the place of a command → what to write instead.
ADVICE = {
    "ls": _MODELS,
    "list": _MODELS,
    "show": _MODELS,
    "tags": _MODELS,
    "run": _TALK,
    "ask": _TALK,
    "complete": _TALK,
    "run-batch": "`penstock generate MODEL --input FILE` answers a file of prompts, also one of OpenAI's batches.",
    "download": _PULL,
    "get": _PULL,
    "remove": _REMOVE,
    "delete": _REMOVE,
    "server": _START,
    "up": _START,
    "load": _START,
    "down": _UNLOAD,
    "kill": _UNLOAD,
    "unload": _UNLOAD,
    "create": "`penstock convert MODEL FOLDER` writes a model with smaller weights.",
    "info": "`penstock doctor` says what was found on this machine.",
    "env": "`penstock doctor` says what was found on this machine.",
    "log": "`penstock logs` shows what the daemon in the background has said.",
    "version": "`penstock --version` says which one this is.",
}
