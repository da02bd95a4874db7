"""llama-server with one of llama.cpp's n-gram kinds; the program lies beside the Python that has llama-cpp-python.

    python -m bench.engines.drafting.llama_server --spec-type ngram-simple --spec-draft-n-max 64

The words are llama-server's own options. It is started again for each prompt that differs from the last, because the
pools of some kinds outlive a request.
"""

import ctypes
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ..llama_cpp import MODEL_FILE, LlamaCpp
from ..serve import Request, ServedEngine, Settings, serve

START_SECONDS = 120.0
_PR_SET_PDEATHSIG = 1


class LlamaServer(ServedEngine):
    def __init__(self, *options: str) -> None:
        self._options = options
        self._command: list[str] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._last = list[int]()

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        LlamaCpp().prepare(checkpoint, folder, quantization)

    def load(self, folder: Path, settings: Settings) -> dict[str, Any]:
        program = Path(sys.executable).with_name("llama-server")
        if not program.exists():
            raise FileNotFoundError(f"{program} is missing: build it from llama.cpp's source and copy it there.")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        threads = str(settings.threads)
        self._command = [
            str(program), "--model", str(folder / MODEL_FILE), "--host", "127.0.0.1", "--port", str(self._port),
            "--threads", threads, "--threads-batch", threads, "--ctx-size", str(settings.max_model_len),
            "--parallel", "1", "--no-ui", *self._options,
        ]  # fmt: skip
        self._start()
        return {"options": self._options}

    def make_room(self, requests: list[Request]) -> None:
        [(ids, _)] = requests
        if self._last and ids != self._last:
            self.close()
            self._start()
        self._last = ids

    def run(self, requests: list[Request]) -> list[list[int]]:
        [(ids, tokens)] = requests
        body = {
            "prompt": ids, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "return_tokens": True,
            "cache_prompt": True,
        }  # fmt: skip
        return [self._answer("completion", body)["tokens"]]

    def _start(self) -> None:
        self._server = subprocess.Popen(self._command, stdout=sys.stderr, preexec_fn=_end_with_parent)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._server.poll() is None:
            try:
                self._answer("health")
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError(f"llama-server isn't ready; its status is {self._server.poll()}")

    def _answer(self, path: str, body: dict[str, Any] | None = None) -> Any:
        content = json.dumps(body).encode() if body else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/{path}", content, headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def close(self) -> None:
        if self._server:
            self._server.terminate()
            self._server.wait()
            self._server = None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve(LlamaServer(*sys.argv[1:]))
