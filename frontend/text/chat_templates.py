"""Reads a model's chat templates and the names of its special tokens, without its vocabulary.

A start needs them before its processes are running, so this imports nothing that takes time.
"""

from pathlib import Path
from typing import Any

from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_settings, read_model_text, values_of


def read_chat_template(folder: Path, settings: dict[str, Any]) -> str | dict[str, str] | None:
    """One template, or several by name. Separate files have precedence over the settings."""
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").exists():
        files["default"] = folder / "chat_template.jinja"
    if files:
        templates = {name: read_model_text(path) for name, path in files.items()}
        return templates["default"] if templates.keys() == {"default"} else templates
    found = settings.get("chat_template") or read_model_settings(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        return {text_value(named["name"]): text_value(named["template"]) for named in found}
    return None if found is None else text_value(found)


def text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"where a text belongs it has {shown(value)}")
    return value


def chat_templates(folder: Path) -> str:
    """All of a model's templates joined, without reading its vocabulary."""
    with values_of(folder / "tokenizer_config.json"):
        found = read_chat_template(folder, read_model_settings(folder / "tokenizer_config.json"))
    return "\n".join(found.values()) if isinstance(found, dict) else found or ""


def special_tokens(folder: Path) -> str:
    """The names of all special tokens, one per line."""
    added = read_model_settings(folder / "tokenizer.json").get("added_tokens") or []
    settings = read_model_settings(folder / "tokenizer_config.json").get("added_tokens_decoder") or {}
    with values_of(folder / "tokenizer_config.json"):
        return "\n".join(token["content"] for token in (*added, *settings.values()))
