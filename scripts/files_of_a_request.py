"""Which source files one greedy request runs through, process by process, counted room by room.

    python scripts/files_of_a_request.py

A profiler stands in every process of the tree from its first line on; what runs before the model is ready is left out.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
# Python runs it in every process whose path leads to it.
_HOOK = '''
import atexit, os, sys, threading
seen, folder, root = set(), os.environ["FILES_OF"], os.environ["FILES_ROOT"] + os.sep
def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name not in seen and name.startswith(root) and os.path.exists(folder + "/ready"):
        if "site-packages" not in name:
            seen.add(name)
            with open(f"{folder}/{os.getpid()}", "a") as file:
                file.write(name[len(root):] + "\\n")
sys.setprofile(note)
threading.setprofile(note)
'''
_REQUEST = """
import os
from pathlib import Path
from penstock import LLM, SamplingParams
with LLM("pocket", quiet=True) as llm:
    params = SamplingParams(temperature=0, max_tokens=8)
    Path(os.environ["FILES_OF"], "ready").touch()
    llm.generate(["What is 17 + 25?"], params, use_tqdm=False)
    Path(os.environ["FILES_OF"], "ready").unlink()
"""


def main() -> None:
    with TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(_HOOK)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "FILES_OF": folder, "FILES_ROOT": str(_package())}
        subprocess.run([sys.executable, "-c", _REQUEST], env=environment, check=True)
        found = {name for each in Path(folder).iterdir() if each.name.isdigit() for name in each.read_text().split()}
    rooms = Counter(name.split("/")[0] for name in found)
    print("\n".join(sorted(found)))
    print(json.dumps(rooms), sum(rooms.values()), "files")


def _package() -> Path:
    code = "import penstock; print(penstock.__file__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return Path(told.stdout.strip()).parent


if __name__ == "__main__":
    main()
