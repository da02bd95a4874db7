"""Where the weights of a model folder are: in the folder itself, or cut for a number of ranks, in a folder for each, or
in GGUF files elsewhere (`worker/description/linked_files.py`).

A cut model has `rank-0-of-2`, `rank-1-of-2` and so on beside its config.json. Reads no weights and imports no torch.
"""

import hashlib
import os
import re
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.model_file import file_identity
from ...description.linked_files import linked_files

# As Mistral's own code, PEFT, and Paddle's trainer name what may lie beside a model's files.
_NOT_THE_MODEL = ("consolidated", "adapter_model", "optimizer", "master_weights")
_RANK_FOLDER = re.compile(r"rank-\d+-of-(\d+)")


def rank_folder(rank: int, size: int) -> str:
    """The name of what one of `size` ranks reads."""
    return f"rank-{rank}-of-{size}"


def own_weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, without those that hold the same weights again, or an adapter's."""
    files = sorted(folder.glob("*.safetensors"))
    return [path for path in files if not path.name.startswith(_NOT_THE_MODEL)] or files


def weight_files(folder: Path) -> list[Path]:
    """All files of a model's weights, those of all its ranks where it is cut."""
    if (linked := linked_files(folder)) is not None:
        return linked.all
    return own_weight_files(folder) or sorted(folder.glob("rank-*-of-*/*.safetensors"))


def identity(folder: Path) -> str:
    """Tells this checkpoint from any other, and from itself once a file of it has changed. Begins the names of what is
    kept of it."""
    files = [path for path in (*weight_files(folder), folder / "config.json") if os.path.exists(path)]
    lines = (f"{os.path.relpath(path, folder)} {file_identity(path)}" for path in files)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def ranks_cut_for(folder: Path) -> int:
    """How many ranks the weights are cut for; 0 where they are whole, and any number can share them."""
    if any(folder.glob("*.safetensors")):
        return 0
    found = (_RANK_FOLDER.fullmatch(path.name) for path in folder.glob("rank-*-of-*"))
    return max((int(match[1]) for match in found if match), default=0)


def check_cut(folder: Path, size: int, wants_whole_experts: bool = False) -> None:
    """Refuse ranks that the weights are not cut for, by their number or by what they are to have of experts."""
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
