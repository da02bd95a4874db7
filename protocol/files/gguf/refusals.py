"""Error messages for GGUF files that can't be used: a sentence that begins with the file's name, and one with advice.

A sentence names only the file, not its folder on this machine: the daemon's clients read it, too.
"""

from pathlib import Path

from ...errors import ConfigError
from ..user_folders import reason
from ..utf8 import shown

AGAIN = "Download it again, or use another one."
# For a file that may well be valid.
UNSUPPORTED = "Use another file of this model, or the model as it was published, in safetensors."


class MalformedError(Exception):
    """A fault of a file, worded as the rest of a sentence that begins "it"; `advice` is a sentence."""

    def __init__(self, what: str, advice: str = AGAIN) -> None:
        super().__init__(what)
        self.advice = advice

    def said_of(self, file: Path) -> ConfigError:
        return ConfigError(f"{file_name(file)} can't be used: it {self}. {self.advice}")


def unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file_name(file)} can't be read: {reason(error)}. See that it is there and may be read.")


def file_name(path: Path) -> str:
    """A file's name for messages, without terminal control characters."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown(Path(path.name)))
