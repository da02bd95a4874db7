"""A machine in small for the chaos test: a home, folders for sockets, logs and caches, a clock, and a daemon.

Everything that runs in it carries a mark in its environment, by which `processes` finds it wherever it has gone. The
logs lie on a small file system of their own where one can be mounted, so that it can be filled.
"""

import http.client
import os
import re
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from builders.canaries import canaries, contents
from builders.traffic import GREEDY, QUESTIONS, completion
from builders.watching import module_of

from penstock import LLM, PenstockError

# A process that stands still is given up after that long.
WATCHDOG_SECONDS = 4.0
# Within that time everything must be as good as new after the last fault of a kind has gone.
WELL_SECONDS = 60.0
_SERVED = (
    "pocket", "--max-model-len", "512", "--num-gpu-blocks-override", "96", "--keep-alive", "inf",
    "--watchdog-timeout", str(WATCHDOG_SECONDS), "--http", "127.0.0.1:0",
)  # fmt: skip
_LOG_SPACE = "3m"
_CLOCK = Path(__file__).parent / "clock"


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.runtime, self.logs, self.cache = (folder / name for name in ("home", "r", "logs", "cache"))
        for path in (self.home, self.runtime, self.logs, self.cache, folder / "cwd"):
            path.mkdir(mode=0o700)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_LOG_SPACE}", "none", self.logs], check=False)
        self.has_small_disk = mounted.returncode == 0
        roots = (self.runtime, self.logs, self.cache, self.home)
        self._canaries = {root: contents(canaries(root)) for root in roots}  # what is somebody else's
        self.address = folder / "s" / "socket"
        self.clock = folder / "clock"
        self.move_clock(0.0)
        self.mark = f"chaos-{os.getpid()}-{time.monotonic_ns()}"
        self.environment = {
            **os.environ,
            "HOME": str(self.home),
            "PENSTOCK_RUNTIME_DIR": str(self.runtime),
            "PENSTOCK_LOG_DIR": str(self.logs),
            "PENSTOCK_CACHE": str(self.cache),
            "PENSTOCK_CHAOS": self.mark,
            "PENSTOCK_CHAOS_CLOCK": str(self.clock),
            "PYTHONPATH": str(_CLOCK),
        }
        self.daemon: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.daemon_starts = 0
        self.daemon_hurt_at = -1e9  # when something last happened to the daemon itself
        self.texts: dict[str, str] = {}

    # --- the daemon --------------------------------------------------------------------------------------------------

    def start_daemon(self) -> None:
        """In the foreground, as a service manager does; returns when it can be asked."""
        said = self.folder / f"said-{self.daemon_starts}"
        self.daemon_starts += 1
        command = [sys.executable, "-m", "penstock", "serve", *_SERVED, "--socket", str(self.address)]
        with open(said, "wb") as file:
            folder = self.folder / "cwd"
            folder.mkdir(exist_ok=True)
            self.daemon = subprocess.Popen(command, stdout=file, stderr=file, env=self.environment, cwd=folder)
        deadline = time.monotonic() + WELL_SECONDS
        while not (found := re.search(rb"http://[\d.]+:(\d+)", said.read_bytes())):
            assert self.daemon.poll() is None and time.monotonic() < deadline, said.read_text()
            time.sleep(0.02)
        self.port = int(found[1])

    def keep_daemon(self) -> None:
        """Start it again where it has ended, as a service manager does."""
        if self.daemon is not None and self.daemon.poll() is not None:
            self.hurt_daemon()
            self.start_daemon()

    def hurt_daemon(self) -> None:
        self.daemon_hurt_at = time.monotonic()

    def stop_daemon(self) -> str:
        """By its own command; what that said."""
        command = [sys.executable, "-m", "penstock", "stop", "--socket", str(self.address), "--drain", "1"]
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        self.daemon.wait(timeout=30)
        return ended.stdout + ended.stderr

    # --- looking -----------------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All that carry the mark and are no zombies."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("PENSTOCK_CHAOS") == self.mark:
                    found.append(process)
        return found

    def tree(self) -> dict[str, psutil.Process]:
        """The daemon's model by what each process does; empty while there is none."""
        found = {}
        with suppress(psutil.Error):
            for child in psutil.Process(self.daemon.pid).children():
                found[module_of(child.pid).rpartition(".")[2]] = child
        return {role: process for role, process in found.items() if role in ("engine", "worker", "detokenizer")}

    def is_well(self) -> bool:
        """Both doors answer as they did at the start."""
        with suppress(OSError, PenstockError, http.client.HTTPException, ValueError, KeyError):
            self.keep_daemon()
            with LLM("pocket", connect=str(self.address), quiet=True) as llm:
                [output] = llm.generate(QUESTIONS[:1], GREEDY, use_tqdm=False)
            text = completion(self.port, QUESTIONS[0])
            return output.outputs.text == self.texts[QUESTIONS[0]] == text
        return False

    def is_ours(self, path: Path) -> bool:
        """True if one of the folders directly holds something that is no canary."""
        return path.name not in self._canaries[path.parent]

    def changed_canaries(self) -> list[str]:
        found = []
        for root, before in self._canaries.items():
            now = contents(root)
            found += [str(root / name) for name in before if now.get(name) != before[name]]
        return found

    def learn_texts(self) -> None:
        with LLM("pocket", connect=str(self.address), quiet=True) as llm:
            outputs = llm.generate(QUESTIONS, GREEDY, use_tqdm=False)
        self.texts = {question: output.outputs.text for question, output in zip(QUESTIONS, outputs, strict=True)}

    # --- the surroundings --------------------------------------------------------------------------------------------

    def move_clock(self, seconds: float) -> None:
        with open(self.clock, "r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))

    def close(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        if self.has_small_disk:
            subprocess.run(["umount", "-l", self.logs], check=True)
