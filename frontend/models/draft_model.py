"""Finds the model or the heads that draft for a model, and checks that both have the same tokens.

Only ids that both have are compared: models of one family often differ in a few special tokens, or in how many unused
ids fill their vocabulary up.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import ConfigError
from ...protocol.files.model_file import read_model_settings
from ...protocol.options.config import EngineConfig
from ..console import logs
from .model_files import ModelFiles, find_model

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


def with_draft_model(files: ModelFiles, config: EngineConfig) -> ModelFiles:
    """The files, with those of the model or the heads that the options name to draft."""
    speculation = config.speculative_config
    if speculation is None or speculation.method not in ("draft_model", "eagle3") or speculation.model is None:
        return files
    if speculation.method == "draft_model" and _is_of_heads(speculation.model):
        raise ConfigError(
            f"speculative_config: {speculation.model} holds EAGLE-3 heads, not a model that drafts alone. Give "
            '"method": "eagle3" with it.'
        )
    # Heads have no tokens of their own.
    tokenizer = files.tokenizer_folder if speculation.method == "eagle3" else None
    draft = find_model(speculation.model, tokenizer, is_quiet=logs.is_quiet(config.quiet))
    return replace(files, draft_folder=draft.folder, draft_tokenizer_folder=draft.tokenizer_folder)


def _is_of_heads(model: str) -> bool:
    """Whether a folder's config is that of EAGLE-3 heads; of what isn't on this machine the name tells."""
    folder = Path(os.path.expanduser(model))
    if not folder.is_dir():
        return "eagle3" in model.casefold()
    config = read_model_settings(folder / "config.json")
    names = [config.get("architectures"), config.get("speculators_model_type")]
    return "draft_vocab_size" in config or "eagle3" in str(names).casefold()


def check_vocabulary(tokenizer: "Tokenizer", files: ModelFiles) -> None:
    """Refuse a draft model whose tokens are others."""
    from ..text.tokenizer_files import read_backend

    if files.draft_tokenizer_folder is None or files.draft_tokenizer_folder == files.tokenizer_folder:
        return
    own = {number: token for token, number in tokenizer.backend.get_vocab().items()}
    drafts = {number: token for token, number in read_backend(files.draft_tokenizer_folder).get_vocab().items()}
    different = sorted(number for number in own.keys() & drafts.keys() if own[number] != drafts[number])
    if different or len(drafts) < len(own) // 2:
        first = f"; {different[0]} is {own[different[0]]!r} and {drafts[different[0]]!r}" if different else ""
        raise ConfigError(
            f"speculative_config: the draft model {files.draft_folder} has other tokens than {files.name}: "
            f"{len(drafts):,} and {len(own):,}, of which {len(different):,} with the same id differ{first}. Use a "
            "smaller model of the same family."
        )
