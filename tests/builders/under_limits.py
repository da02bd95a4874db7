"""Lowers its own hard limits, as batch systems do, and has everyone do a job who uses a process with limits.

    python -m builders.under_limits '{"RLIMIT_CPU": 60}' FOLDER [JOB…]

Prints as JSON what came of each, or what one process of `bounded_work.py` answers to each job. Everyone imports what is
needed only then: it counts towards the limits.
"""

import ctypes
import io
import json
import resource
import sys
from pathlib import Path

from penstock.protocol.errors import PenstockError
from penstock.protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError

_DROP_FROM_BOUNDING_SET, _CAP_SYS_RESOURCE = 24, 24  # of prctl(2) and capabilities(7)


def picture(folder: Path) -> object:
    from PIL import Image

    from penstock.frontend.media.families.qwen import Qwen3Vision
    from penstock.frontend.media.processes import MediaProcesses
    from penstock.frontend.media.processor_files import ProcessorFiles
    from penstock.frontend.media.sources.source import encoded

    content = io.BytesIO()
    Image.new("RGB", (300, 400)).save(content, "PNG")
    processes = MediaProcesses(Qwen3Vision.of(ProcessorFiles(folder, {}, {}, {}, {})))
    found = processes.decode(encoded("image", content.getvalue(), may_open=False))
    return str(found) if isinstance(found, Exception) else list(found.shape)


def template(folder: Path) -> object:
    from penstock.frontend.text.template_input import TemplateInput
    from penstock.frontend.text.template_process import TemplateProcesses

    conversation = TemplateInput([{"role": "user", "content": "hi"}], None, {})
    return list(map(str, TemplateProcesses().render("{{ messages[0].content }}", {}, [conversation], 9)))


def gguf(folder: Path) -> object:
    from builders.converted_gguf import write_converted

    from penstock.frontend.models.gguf.find import files_of
    from penstock.frontend.models.gguf.translated import translated_folder

    return translated_folder(files_of(write_converted(folder / "model.gguf", "llama"))).is_dir()


def grammar(folder: Path) -> object:
    from penstock.engine.grammar.trial import Trial
    from penstock.protocol.parameters.guided import Grammar

    return Trial().fault(Grammar("regex", "a"))


def follower(folder: Path) -> object:
    import msgspec

    from penstock.engine.grammar.remote import FollowJob, Report

    process = BoundedProcess("grammar", "penstock.engine.grammar.remote_process", Bounds())
    of_no_sequence = msgspec.msgpack.encode(FollowJob(0, None, [], []))
    return msgspec.msgpack.decode(process.ask(of_no_sequence), type=Report).error


def answer(process: BoundedProcess, job: str) -> str:
    try:
        return process.ask(job.encode()).decode()
    except (JobDiedError, PenstockError) as error:
        return str(error)


if __name__ == "__main__":
    limits, place, *jobs = sys.argv[1:]
    # Else root's processes may raise their limits again.
    ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _CAP_SYS_RESOURCE, 0, 0, 0)
    for name, most in json.loads(limits).items():
        resource.setrlimit(getattr(resource, name), (most, most))
    process, users = BoundedProcess("helper", "builders.bounded_work", Bounds()), (picture, template, gguf, grammar)
    found = {user.__name__: user(Path(place)) for user in (*users, follower)} if not jobs else {}
    print(json.dumps(found or [answer(process, job) for job in jobs]))
