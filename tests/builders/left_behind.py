"""Ends what a test process leaves running where it ends before its fixtures do: after Ctrl-C, a kill or its own clock.

Daemons outlive whoever started them, on purpose. A process of its own waits here for the end of the test process and
knows them by the runtime folder in their environment.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

SECONDS_TO_END = 10.0


@contextmanager
def ended_with_this_process(runtime: str) -> Iterator[None]:
    """Whatever has this runtime folder in its environment ends with this process, however that ends."""
    command = [sys.executable, __file__, runtime]
    waiting = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    yield
    waiting.communicate(b"Fixtures have ended all.")


def end_all(runtime: str) -> None:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PENSTOCK_RUNTIME_DIR") == runtime and process.pid != psutil.Process().pid:
                process.terminate()
                found.append(process)
    for process in psutil.wait_procs(found, SECONDS_TO_END)[1]:
        with suppress(psutil.Error):
            process.kill()
    shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__" and not sys.stdin.buffer.read():
    end_all(sys.argv[1])
