"""Feed a recorded message stream to a new worker and compare its answers with the recorded ones.

    penstock generate MODEL "prompt" --record stream.bin
    python scripts/replay.py stream.bin MODEL [--option deterministic=true …]

A worker is a pure function of its stream, so its tokens must be the recorded ones; the first step that differs is
shown. Runs in this process, without engine or sockets: a fault found once can be looked at again, in a debugger.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from penstock.frontend.models.model_files import find_model
from penstock.protocol.adapter_messages import LoadAdapter, UnloadAdapter
from penstock.protocol.errors import AdapterError
from penstock.protocol.messages import Allocate, MaskFrame, StepPlan, StepResult, WorkerInbox
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.launch import Launch
from penstock.protocol.processes.recording import RecordedMessage, read_recording
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import values
from penstock.worker.lora.adapters import AdapterBank
from penstock.worker.start.start import Start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("model")
    parser.add_argument("--option", action="append", default=[], help="name=value in JSON, as the recorded tree had it")
    arguments = parser.parse_args()
    options = {name: msgspec.json.decode(value) for name, value in (item.split("=", 1) for item in arguments.option)}
    config = EngineConfig.from_options(arguments.model, **options)
    files = find_model(config.model)
    recorded = list(read_recording(arguments.recording, WorkerInbox | StepResult))
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "tree"
        directory.mkdir()
        launch = Launch(config, str(files.folder), str(files.tokenizer_folder), config.num_threads or 2)
        start = Start(launch, 0, directory)
        start.plan()
        different = replay(start, recorded)
        start.close()
    sys.exit(1 if different else 0)


def replay(start: Start, recorded: list[RecordedMessage]) -> bool:
    """Run all plans; True if a step's tokens differ."""
    [allocate] = (entry.message for entry in recorded if isinstance(entry.message, Allocate))
    masks = {entry.message.step: entry.message for entry in recorded if isinstance(entry.message, MaskFrame)}
    answers = {entry.message.step: entry.message for entry in recorded if isinstance(entry.message, StepResult)}
    runner = start.runner(allocate, Trace(None, "worker 0"))
    steps = 0
    for plan in plans(recorded, start.model.adapters):
        result, answer = runner.step(plan, masks.__getitem__), answers.get(plan.step)
        steps += 1
        if answer is not None and (result.sampled, result.num_sampled) != (answer.sampled, answer.num_sampled):
            print(f"step {plan.step} differs: {list(values(result.sampled))} now, {list(values(answer.sampled))} then")
            return True
    print(f"{steps} steps gave the recorded tokens")
    return False


def plans(recorded: list[RecordedMessage], adapters: AdapterBank | None) -> Iterator[StepPlan]:
    """One after the other, adapters coming and going between them as they did."""
    for entry in recorded:
        match entry.message:
            case StepPlan() as plan:
                yield plan
            case LoadAdapter(place, folder) if adapters is not None:
                with suppress(AdapterError):  # then no plan uses it
                    adapters.load(place, Path(folder))
            case UnloadAdapter(place) if adapters is not None:
                adapters.unload(place)


if __name__ == "__main__":
    main()
