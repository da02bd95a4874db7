"""Recognizes files that are no model or can't be read (Git LFS pointers, pickles, adapters), and says what to use."""

from pathlib import Path

_POINTER_BEGINS = b"version https://git-lfs.github.com/spec/"


def is_pointer(path: Path) -> bool:
    """Whether it is one of the short text files that a clone without LFS has instead of large files."""
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(len(_POINTER_BEGINS)) == _POINTER_BEGINS
    except OSError:
        return False


def pointer_in(folder: Path) -> Path | None:
    """An LFS pointer among the files of a model that would be read, if there is one."""
    files = (*folder.glob("*.json"), *folder.glob("*.safetensors"), *folder.glob("tokenizer.model*"))
    return next(filter(is_pointer, files), None)


def pointer_refusal(path: Path) -> str:
    return (
        f"{path} is a Git-LFS pointer, not the file itself: the repository was cloned without Git LFS. Run "
        f"`git lfs pull` in {path.parent}, or download the model anew."
    )


def pickle_in(folder: Path) -> Path | None:
    """A Paddle pickle, if the folder has nothing readable instead."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("rank-*-of-*/*.safetensors")):
        return None
    return next(iter(sorted(folder.glob("*.pdparams"))), None)


def pickle_refusal(path: Path) -> str:
    return (
        f"{path} is written by Paddle's own `save`, as a pickle, which could run code when it is read; only "
        "*.safetensors are read here. Use the model as it is published (-Paddle or -PT), or write it anew with "
        "save_pretrained(…, safe_serialization=True)."
    )


def foreign_model(path: Path) -> str | None:
    """Describe a file, or a folder without config.json, and what to give instead; None: unknown."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    if any(file.name == "adapter_config.json" for file in files) and path.is_dir():
        return (
            f"{path} is a LoRA adapter. Give the model that it was trained on, with enable_lora=True, and the adapter "
            "to load_lora()."
        )
    if path.is_file() and (path.parent / "config.json").exists():
        return f"{path} is one file of a model. Give its folder: {path.parent}"
    return None
