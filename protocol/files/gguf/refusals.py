"""How a GGUF file that can't be used is refused: one sentence that begins with its name, and one that says what to do.

A sentence names the file alone, not where it lies on this machine: the daemon's clients read it, too.
"""

from pathlib import Path

from ...errors import ConfigError
from ..user_folders import reason
from ..utf8 import shown

AGAIN = "Download it again, or use another one."
# Of a file that may well be right.
UNSUPPORTED = "Use another file of this model, or the model as it was published, in safetensors."


class MalformedError(Exception):
    """What is wrong with a file, as the rest of a sentence that begins "it"; `advice` is a sentence."""

    def __init__(self, what: str, advice: str = AGAIN) -> None:
        super().__init__(what)
        self.advice = advice

    def said_of(self, file: Path) -> ConfigError:
        return ConfigError(f"{file_name(file)} can't be used: it {self}. {self.advice}")


def unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file_name(file)} can't be read: {reason(error)}. See that it is there and may be read.")


def file_name(path: Path) -> str:
    """The name of a file, for sentences: without what a terminal would take for orders."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown(Path(path.name)))
