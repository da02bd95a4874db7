"""Looks for headers of GGUF files that break their reader, guided by which of its lines run.

    python -m builders.fuzz_gguf FOLDER RUNS        ends with 0 where none was found

A header that breaks something ends the process; it stays in FOLDER as `crash-…`. Needs `penstock[fuzz]`.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["penstock.protocol.files.gguf"]):
    from builders.gguf_mutations import FOLDER, is_read, mutated, right_file

MOST_MEGABYTES, MOST_SECONDS, MOST_OCTETS = 1024, 5, 8192
SEEDS = 200  # broken files to begin with


def main(folder: Path, runs: int) -> None:
    corpus, path = folder / "corpus", folder / FOLDER / "model.gguf"
    corpus.mkdir()
    path.parent.mkdir()
    for number, content in enumerate([right_file(), *map(mutated, range(SEEDS))]):
        (corpus / str(number)).write_bytes(content)
    limits = [f"-rss_limit_mb={MOST_MEGABYTES}", f"-timeout={MOST_SECONDS}", f"-max_len={MOST_OCTETS}"]
    options = [f"-runs={runs}", "-seed=1", f"-artifact_prefix={folder}/", *limits]

    def tried(content: bytes) -> None:
        is_read(path, content, "this header")

    atheris.Setup([sys.argv[0], *options, str(corpus)], tried)
    atheris.Fuzz()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
