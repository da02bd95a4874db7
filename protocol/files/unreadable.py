"""Recognizes checkpoints that can't be read, Git LFS pointers and Paddle's own layout, and says what to use instead."""

import re
from pathlib import Path

_POINTER_BEGINS = b"version https://git-lfs.github.com/spec/"
_PADDLE_ENDING = "-Paddle"
# Names that state active parameters ("21B-A3B"), or images.
_NOT_READ = re.compile(r"-A\d+(\.\d+)?B\b|\bVL\b|\bMoE\b", re.IGNORECASE)


def is_pointer(path: Path) -> bool:
    """Whether it is one of the short text files that a clone without LFS has in place of large files."""
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(len(_POINTER_BEGINS)) == _POINTER_BEGINS
    except OSError:
        return False


def pointer_in(folder: Path) -> Path | None:
    """A pointer among the files of a model that would be read, if there is one."""
    files = (*folder.glob("*.json"), *folder.glob("*.safetensors"), *folder.glob("tokenizer.model*"))
    return next(filter(is_pointer, files), None)


def pointer_refusal(path: Path) -> str:
    return (
        f"{path} is a Git-LFS pointer, not the file itself: the repository was cloned without Git LFS. Run "
        f"`git lfs pull` in {path.parent}, or download the model anew."
    )


def paddle_refusal(name: str) -> str:
    """The refusal of a checkpoint whose weights are transposed; `name` may be a folder's.

    Its publisher has the same model in Hugging Face's layout, under the same name with -PT at its end. That one is
    recommended unless it couldn't be read here either, as with models of experts or of images.
    """
    refusal = f"{name} is a checkpoint in Paddle's own layout, which is not read here."
    if _NOT_READ.search(name):
        return f"{refusal} Nor is its Hugging Face twin: models with experts or images are not supported."
    return f"{refusal} Use its Hugging Face twin, {name.removesuffix(_PADDLE_ENDING)}-PT."
