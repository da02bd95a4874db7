"""Chat templates that clients bring, rendered in a process of their own: what never ends or fills memory does so there.

Jinja's sandbox keeps a template from the machine, but neither from looping without end nor from growing a text without
bound. The process bounds itself, by limits that the kernel keeps, and lives for one template and the conversations that
came with it. Knows nothing of requests.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from ..protocol.child import begin
from ..protocol.errors import RequestError
from ..protocol.process import run_to_end, start_child
from ..protocol.process_limits import bound_memory, bound_time
from .turn import Turn

_CPU_SECONDS = 5  # for all conversations of a group, which are at most a few hundred
_MEMORY_BYTES = 512 << 20  # beyond what the process has at its start
_NICE = 5  # it gives way to models, and shares what they leave with others of its kind
_WALL_SECONDS = 30  # where the process gets no processor


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
    job = msgspec.msgpack.encode(_Job(template, dict(special_tokens), list(turns)))
    helper = partial(start_child, "template", __name__, [str(cpu_seconds)])
    try:
        done = run_to_end(helper, _WALL_SECONDS, given=job)
        texts = msgspec.msgpack.decode(done.output, type=list[_Text])
    except TimeoutError:
        return _refused(f"takes more than {_WALL_SECONDS} s", turns)
    except msgspec.DecodeError:  # it has ended before its last word
        return _refused(_why(done.status, cpu_seconds), turns)
    return [RequestError(each.text) if each.is_refusal else each.text for each in texts]


def _refused(why: str, turns: Sequence[Turn]) -> list[str | RequestError]:
    return [RequestError(f"The chat template of this request {why}.") for _ in turns]


def _why(status: int | None, cpu_seconds: int) -> str:
    if status == -signal.SIGXCPU:
        return f"takes more than {cpu_seconds} s of processor time"
    return f"takes more than {_MEMORY_BYTES >> 20} MiB, or breaks what renders it"


# --- the process -----------------------------------------------------------------------------------------------------


def main(cpu_seconds: int) -> None:
    from .turn import rendered_turn

    os.nice(_NICE)
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Job)
    bound_memory(_MEMORY_BYTES)
    bound_time(cpu_seconds)
    texts = [_Text(*rendered_turn(job.template, job.special_tokens, turn)) for turn in job.turns]
    sys.stdout.buffer.write(msgspec.msgpack.encode(texts))


if __name__ == "__main__":
    main(*map(int, begin()))
