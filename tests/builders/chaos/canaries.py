"""Files that belong to somebody else, laid wherever Penstock writes, and what has become of them.

Their names look like Penstock's own: runtime folders, logs, cached weights. `plant` makes them, `changed` says which of
them are no longer what they were.
"""

import os
import stat
from pathlib import Path

_RUNTIME = ("thesis/chapter.tex", "tests/test_it.py", "t1234/data.bin", "t/lock", "tabcdefgh/engine")
_LOGS = tuple(f"20260101-00000{number}-000000-{number}.log" for number in range(9)) + ("server.log", "notes.txt")
_CACHE = ("packed/mine.safetensors", "tokenizers/mine/tokenizer.json", "triton/mine.json", "photos/one.raw")
_HOME = (".bashrc", ".cache/other/file", ".local/state/other/file", "answers.jsonl")


class Canaries:
    def __init__(self, runtime: Path, logs: Path, cache: Path, home: Path) -> None:
        self._roots = {runtime: _RUNTIME, logs: _LOGS, cache: _CACHE, home: _HOME}
        self._before: dict[Path, tuple[object, ...]] = {}

    def plant(self) -> None:
        for root, names in self._roots.items():
            for name in names:
                path = root / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.write_bytes(os.urandom(64))
            (root / "link").symlink_to(root / names[0])
        for path in self.paths():
            self._before[path] = _state(path)

    def changed(self) -> list[str]:
        return [str(path) for path, state in self._before.items() if _state(path) != state]

    def paths(self) -> list[Path]:
        return [root / name for root, names in self._roots.items() for name in (*names, "link")]


def _state(path: Path) -> tuple[object, ...]:
    try:
        status = path.lstat()
    except OSError as error:
        return (type(error).__name__,)
    content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else path.read_bytes()
    return status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ino, content
