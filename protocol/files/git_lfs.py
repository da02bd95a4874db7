"""Recognizes Git LFS pointers: the short text files that a clone without LFS has in place of large files."""

from pathlib import Path

_FIRST_WORDS = b"version https://git-lfs.github.com/spec/"


def is_pointer(path: Path) -> bool:
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(len(_FIRST_WORDS)) == _FIRST_WORDS
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
