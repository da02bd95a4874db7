"""The formats of what is kept between runs, and perhaps between versions of Penstock.

A format's number changes with every change that an earlier reader would misread. What has another number is refused in
a sentence if it can't be made again, and otherwise made anew. Fields that are only added, with a default, change no
number. docs/releases.md has the rule; processes that speak to each other compare a hash of their messages instead
(`../fingerprint.py`).
"""

from typing import NamedTuple


class KeptFormat(NamedTuple):
    what: str
    version: int

    def refusal(self, found: object) -> str:
        """Why one of another format isn't read."""
        from ... import __version__

        return (
            f"{self.what} has format {found}, and Penstock {__version__} reads format {self.version}. Use the version "
            "of Penstock that wrote it."
        )


JOURNAL = KeptFormat("The journal of this job", 1)
RECEIPT = KeptFormat("This receipt", 1)
STORED_FILE = KeptFormat("A file of the daemon's clients", 1)
BATCH = KeptFormat("A batch of the daemon's clients", 1)
RECORDING = KeptFormat("This recording", 1)
PACKED_WEIGHTS = KeptFormat("Packed weights", 3)
TRANSLATED_GGUF = KeptFormat("A translated GGUF file", 3)
PREFIXES = KeptFormat("Kept prefixes", 1)

FORMATS = (JOURNAL, RECEIPT, STORED_FILE, BATCH, RECORDING, PACKED_WEIGHTS, TRANSLATED_GGUF, PREFIXES)
