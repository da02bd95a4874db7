"""Counts the source files that a greedy request of text runs through, and one with a picture, room by room.

    python scripts/files_of_a_request.py

A profiler stands in every process of the tree from its first line on; what runs before the first answer is left out.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

# Python runs it in every process whose path leads to it.
_HOOK = """
import os, sys, threading
seen, folder, root = set(), os.environ["FILES_OF"], os.environ["FILES_ROOT"] + os.sep
def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name not in seen and name.startswith(root) and os.path.exists(folder + "/ready"):
        # The thread "touch" populates memory, whatever requests come.
        if "site-packages" not in name and threading.current_thread().name != "touch":
            seen.add(name)
            with open(f"{folder}/{os.getpid()}", "a") as file:
                file.write(name[len(root):] + "\\n")
sys.setprofile(note)
threading.setprofile(note)
"""
_SCRIPT = """
import io, os
from pathlib import Path
from PIL import Image
from penstock import LLM, SamplingParams
picture = io.BytesIO()
Image.new("RGB", (64, 48), "red").save(picture, "png")
part = {"type": "image", "image": picture.getvalue()}
conversation = [{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]
with LLM(MODEL, quiet=True, watchdog_timeout=0) as llm:  # which looks when it likes
    params = SamplingParams(temperature=0, max_tokens=8)
    llm.generate(["An answer, and the workers' start is over"], params, use_tqdm=False)
    Path(os.environ["FILES_OF"], "ready").touch()
    [output] = CALL
    Path(os.environ["FILES_OF"], "ready").unlink()
assert output.error_code == 200, output.error_msg
"""
_REQUESTS = {
    "text": ("'pocket'", "llm.generate(['What is 17 + 25?'], params, use_tqdm=False)"),
    "picture": ("'pocket-sight'", "llm.chat(conversation, params, use_tqdm=False)"),
}


def main() -> None:
    for name in _REQUESTS:
        files = files_of(name)
        print("\n".join(files))
        print(", ".join(f"{room} {count}" for room, count in sorted(rooms_of(files).items())))
        print(name, len(files))


def files_of(name: str) -> list[str]:
    """The files that a request of that name runs through, relative to the package."""
    model, call = _REQUESTS[name]
    with TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(_HOOK)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "FILES_OF": folder, "FILES_ROOT": str(_package())}
        script = _SCRIPT.replace("MODEL", model).replace("CALL", call)
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)
        notes = [each.read_text() for each in Path(folder).iterdir() if each.name.isdigit()]
    return sorted({file for note in notes for file in note.splitlines()})


def rooms_of(files: list[str]) -> Counter[str]:
    """How many of the files each room has."""
    return Counter(file.split("/")[0] for file in files)


def _package() -> Path:
    code = "import penstock; print(penstock.__file__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return Path(told.stdout.strip()).parent


if __name__ == "__main__":
    main()
