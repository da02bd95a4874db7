"""Locates the weights of a model folder: in the folder itself, in a folder for each rank if they were divided, or in
GGUF files elsewhere (`worker/description/linked_files.py`).

A divided model has `rank-0-of-2`, `rank-1-of-2` and so on next to its config.json. Reads no weights.
"""

import hashlib
import os
import re
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.model_file import file_identity
from ...description.linked_files import linked_files

# Other files that Mistral's own code, PEFT, and Paddle's trainer put next to a model's weights.
_NOT_THE_MODEL = ("consolidated", "adapter_model", "optimizer", "master_weights")
_RANK_FOLDER = re.compile(r"rank-\d+-of-(\d+)")


def rank_folder(rank: int, size: int) -> str:
    """The name of the folder for one of `size` ranks."""
    return f"rank-{rank}-of-{size}"


def own_weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, without duplicates of the weights and adapters."""
    files = sorted(folder.glob("*.safetensors"))
    return [path for path in files if not path.name.startswith(_NOT_THE_MODEL)] or files


def weight_files(folder: Path) -> list[Path]:
    """All files of a model's weights, including those of all ranks if divided."""
    if (linked := linked_files(folder)) is not None:
        return linked.all
    return own_weight_files(folder) or sorted(folder.glob("rank-*-of-*/*.safetensors"))


def identity(folder: Path) -> str:
    """Identify this checkpoint in the state of its files. Names of cached files begin with this."""
    files = [path for path in (*weight_files(folder), folder / "config.json") if os.path.exists(path)]
    lines = (f"{os.path.relpath(path, folder)} {file_identity(path)}" for path in files)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def ranks_cut_for(folder: Path) -> int:
    """The number of ranks that the weights are divided for; 0 if they are whole and fit any number."""
    if any(folder.glob("*.safetensors")):
        return 0
    found = (_RANK_FOLDER.fullmatch(path.name) for path in folder.glob("rank-*-of-*"))
    return max((int(match[1]) for match in found if match), default=0)


def check_cut(folder: Path, size: int, wants_whole_experts: bool = False) -> None:
    """Refuse a number of ranks, or a division of experts, that differs from that of the weights."""
    cut_for = ranks_cut_for(folder)
    if cut_for not in (0, size):
        raise ConfigError(
            f"The weights in {folder} are cut for {cut_for} ranks, and tensor_parallel_size is {size}. Use "
            f"tensor_parallel_size={cut_for}, or convert the original again for {size}, or without --per-rank for any."
        )
    if cut_for and wants_whole_experts:
        raise ConfigError(
            f"The weights in {folder} are cut for {cut_for} ranks that have a part of each expert, and "
            "enable_expert_parallel=True gives each of them whole experts. Leave it out, or convert the original "
            "without --per-rank."
        )
