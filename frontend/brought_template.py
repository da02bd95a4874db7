"""Chat templates that clients bring, rendered in a process of their own: what never ends or fills memory does so there.

Jinja's sandbox keeps a template from the machine, but neither from looping without end nor from growing a text without
bound. The process bounds itself, by limits that the kernel keeps, and lives for one template and the conversations that
came with it. Knows nothing of requests.
"""

import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..protocol.errors import RequestError
from ..protocol.process import inherited_path, working_folder

_CPU_SECONDS = 5  # for all conversations of a group, which are at most a few hundred
_MEMORY_BYTES = 512 << 20  # beyond what the process has at its start
_WALL_SECONDS = 30  # where the process gets no processor


class Turn(msgspec.Struct):
    """One conversation, and what else its template is given."""

    messages: list[Any]
    tools: list[Any] | None
    options: dict[str, Any]
    add_generation_prompt: bool = True


class _Job(msgspec.Struct):
    template: str
    special_tokens: dict[str, str]
    turns: list[Turn]


class _Text(msgspec.Struct):
    text: str
    is_refusal: bool = False


def render_apart(
    template: str, special_tokens: Mapping[str, str], turns: Sequence[Turn], cpu_seconds: int = _CPU_SECONDS
) -> list[str | RequestError]:
    """The text of each conversation, or why it has none."""
    command = [sys.executable, "-P", "-m", __name__, str(cpu_seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(inherited_path())}
    job = msgspec.msgpack.encode(_Job(template, dict(special_tokens), list(turns)))
    try:
        process = subprocess.run(
            command, input=job, capture_output=True, env=environment, cwd=working_folder(), timeout=_WALL_SECONDS
        )
        status, said = process.returncode, process.stdout
    except subprocess.TimeoutExpired:
        status, said = -signal.SIGKILL, b""
    if status != 0:
        return [RequestError(f"The chat template of this request {_why(status, cpu_seconds)}.")] * len(turns)
    texts = msgspec.msgpack.decode(said, type=list[_Text])
    return [RequestError(each.text) if each.is_refusal else each.text for each in texts]


def _why(status: int, cpu_seconds: int) -> str:
    if status == -signal.SIGXCPU:
        return f"takes more than {cpu_seconds} s of processor time"
    if status == -signal.SIGKILL:
        return f"takes more than {_WALL_SECONDS} s"
    return f"takes more than {_MEMORY_BYTES >> 20} MiB, or breaks what renders it"


# --- the process -----------------------------------------------------------------------------------------------------


def main(cpu_seconds: int) -> None:
    from .asked import check_template_options
    from .chat import render

    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    _bound(cpu_seconds)

    def text(turn: Turn) -> _Text:
        options = dict(turn.options)
        try:
            check_template_options(options)
            return _Text(
                render(
                    job.template,
                    turn.messages,
                    tools=turn.tools,
                    documents=options.pop("documents", None),
                    add_generation_prompt=turn.add_generation_prompt,
                    continue_final_message=options.pop("continue_final_message", False),
                    special_tokens=job.special_tokens,
                    arguments=options,
                )
            )
        except RequestError as error:
            return _Text(str(error), is_refusal=True)
        except MemoryError:
            raise
        except Exception as error:  # of values that the template wasn't written for: it ends this request alone
            return _Text(f"This conversation can't be rendered: {type(error).__name__}: {error}", is_refusal=True)

    sys.stdout.buffer.write(msgspec.msgpack.encode([text(turn) for turn in job.turns]))


def _bound(cpu_seconds: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(int(sys.argv[1]))
