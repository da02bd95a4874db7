"""To see what the processes do: a timeline to open at ui.perfetto.dev."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock import LLM, SamplingParams

with TemporaryDirectory() as folder:
    path = Path(folder, "steps.json")
    with LLM("pocket", max_model_len=512, trace=path) as llm:
        llm.generate(["one", "two"], SamplingParams(max_tokens=8, ignore_eos=True))
    # One event a line; the list's closing bracket may be missing in this format.
    events = [json.loads(line.rstrip(",\n")) for line in path.open() if line.startswith("{")]
    spans = sorted({event["name"] for event in events if event["ph"] == "X"})
    print(len(events), "events, among them", ", ".join(spans))
