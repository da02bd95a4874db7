"""Renders chat templates in separate processes: a model's own, unless it is known, and those sent with a request.

Jinja's sandbox keeps a template from the machine, but not from endless loops or unbounded texts; the kernel enforces
the process's limits. The process for a model's own template is kept for the next conversation, so that rendering costs
little more than in the same process; one for a client's template lives only for the conversations sent with it.
"""

import hashlib
import json
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.processes.bounded_process import BoundedPool, Bounds, JobDiedError, serve
from ..requests.conversation_checks import check_conversation
from ..requests.plain_types import plain
from ..requests.tool_schemas import check_tools, tool_schema
from .template_input import TemplateInput, render_input

# For all conversations of a group, a few hundred at most.
_BOUNDS = Bounds(cpu_seconds=5, memory_bytes=512 << 20, wall_seconds=30.0)
_NICE = 5  # clients' templates yield to models, and share the remaining time with one another


class TemplateProcesses:
    """A pool of processes, one for each rendering thread; each is started when it is first needed."""

    def __init__(self, bounds: Bounds = _BOUNDS, whose: str = "this model") -> None:
        self.bounds = bounds
        self.whose = whose
        self.pool = BoundedPool("template", __name__, bounds)

    def start(self) -> None:
        """Begin to start one before the first conversation arrives."""
        helper = self.pool.take()
        try:
            helper.start()
        finally:
            self.pool.give_back(helper)

    def wait_until_ready(self) -> None:
        """Wait until the started process has loaded its modules."""
        self.render("", {}, [], 0)

    def render(
        self, template: str, special_tokens: Mapping[str, str], inputs: Sequence[TemplateInput], most_characters: int
    ) -> list[str | RequestError]:
        """The text of each conversation, or its refusal. One that can't be written as JSON is refused alone."""
        written = [_written(each) for each in inputs]
        texts = [each for each in written if isinstance(each, str)]
        head = f"{json.dumps(template)}, {json.dumps(dict(special_tokens))}"
        found = iter(self._rendered(f"[{head}, [{', '.join(texts)}], {most_characters}]".encode(), len(texts)))
        return [next(found) if isinstance(each, str) else each for each in written]

    def _rendered(self, job: bytes, num_inputs: int) -> list[str | RequestError]:
        helper = self.pool.take()
        try:
            found = json.loads(helper.ask(job))
        except JobDiedError as error:
            return [RequestError(f"The chat template of {self.whose} {error}.") for _ in range(num_inputs)]
        finally:
            self.pool.give_back(helper)
        return [_refusal(text, is_too_long) if is_refusal else text for text, is_refusal, is_too_long in found]

    def close(self) -> None:
        """End all processes; conversations being rendered are refused."""
        self.pool.close()


class BoundedRenderer:
    """Renders like `chat.render`: a known template in this process, any other in a process with limits."""

    def __init__(self, processes: TemplateProcesses, most_characters: int) -> None:
        self._processes = processes
        self._most_characters = most_characters

    def __call__(
        self,
        template: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        special_tokens: Mapping[str, str],
        arguments: Mapping[str, Any],
        **given: Any,
    ) -> str:
        if is_known(template):
            from .chat import render  # imports jinja2

            return render(template, messages, special_tokens=special_tokens, arguments=arguments, **given)
        turn = _plain_input(messages, dict(arguments), **given)
        [text] = self._processes.render(template, special_tokens, [turn], self._most_characters)
        if isinstance(text, RequestError):
            raise text
        return text


# For tokenizers that render by themselves, with the process id: a forked process needs its own.
_renderers: "weakref.WeakKeyDictionary[Any, tuple[int, BoundedRenderer]]" = weakref.WeakKeyDictionary()


def renderer_of(owner: Any) -> BoundedRenderer:
    """The owner's renderer, kept for its next conversation. Its processes end with the owner or the program."""
    pid, renderer = _renderers.get(owner, (0, None))
    if renderer is None or pid != os.getpid():
        processes = TemplateProcesses()
        weakref.finalize(processes, _end, os.getpid(), processes.pool)
        renderer = BoundedRenderer(processes, sys.maxsize)  # memory is bounded, and a text alone has no other limit
        _renderers[owner] = os.getpid(), renderer
    return renderer


def _end(pid: int, pool: BoundedPool) -> None:
    if pid == os.getpid():
        pool.close()


def _plain_input(
    messages: Sequence[Mapping[str, Any]],
    options: dict[str, Any],
    *,
    tools: Sequence[Any] | None,
    documents: Sequence[Mapping[str, Any]] | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    sees: bool,
) -> TemplateInput:
    """The caller's objects, checked while they still are those, and converted to types that can be sent."""
    if tools is not None:
        check_tools(tools)
    check_conversation(messages, sees=sees)
    if documents is not None:
        options["documents"] = documents
    if continue_final_message:
        options["continue_final_message"] = True
    schemas = None if tools is None else [plain(tool_schema(tool)) for tool in tools]
    return TemplateInput([plain(each) for each in messages], schemas, plain(options), add_generation_prompt, sees)


def render_request_template(
    template: str,
    special_tokens: Mapping[str, str],
    inputs: Sequence[TemplateInput],
    most_characters: int,
    cpu_seconds: int = _BOUNDS.cpu_seconds,
    wall_seconds: float = _BOUNDS.wall_seconds,
) -> list[str | RequestError]:
    """Render conversations with the template sent with them: a text or a refusal for each."""
    bounds = _BOUNDS._replace(cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, nice=_NICE)
    processes = TemplateProcesses(bounds, "this request")
    try:
        return processes.render(template, special_tokens, inputs, most_characters)
    finally:
        processes.close()


def _refusal(sentence: str, is_too_long: bool) -> RequestError:
    return LimitError(sentence) if is_too_long else RequestError(sentence)


def _named(value: Any) -> str:
    """Convert a value that JSON lacks to the form that templates see everywhere (`plain_types.py`)."""
    return f"<{type(value).__name__}>"


def _written(given: TemplateInput) -> str | RequestError:
    """Encode the input; a client's dict may have keys that JSON lacks, or lists may be nested too deep."""
    try:
        return json.dumps(msgspec.structs.asdict(given), default=_named)
    except (TypeError, ValueError, RecursionError) as error:
        return RequestError(f"This conversation can't be rendered: {type(error).__name__}.")


# --- known templates -------------------------------------------------------------------------------------------------
# These were reviewed, and write no more than a conversation needs. For any other template, only running it shows what
# it does.

# The first half of the SHA-256 of the text without surrounding white space.
_KNOWN = frozenset({
    "793202280c0910ab26bc6eb57c8212c2",  # chatml
    "62204601b00b28f7c79cc4c1a462fead",  # command-r-rag
    "d57f48ea5f23fda954cf664fc9fc3654",  # command-r-tool-use
    "60f9c8211a23cd1aa3bb3941c474ce43",  # deepseek-r1
    "cb09a9fdcd2c597e79ac3e2c00a05d8a",  # ernie4.5
    "ecd6ae513fe103f0eb62e8ab5bfa8d0f",  # gemma
    "8d9e3a3c114fb2053ec500184677af4f",  # gemma3
    "48219f087587e1b427f6a5c62a63a829",  # glm4.5
    "92ec60d35b32ac7f417dd6e3cb9bda0c",  # gpt-oss
    "e3734e46e7e284fde97aa439c7cc3593",  # granite
    "988db97e4a4c3443fe6b3617dfe72034",  # kimi-k2
    "68bfda928bac6357e05caf5b1482954a",  # llama3
    "692c11f5de7b7a82421a4760ab94a1dd",  # mistral-v3
    "8fdb6d4412317d7c8fd07555d72c1b53",  # mistral-v7
    "78d976a442bcde2f0be15aafbb8e3050",  # phi3
    "f4db0f6a5b182f3a22b82205e50aec87",  # phi4
    "251b602f6226a121d0d36636f8e9936e",  # qwen2.5
    "838058b5a1a13092e502104f0941de3f",  # qwen3.5
    "e4db1dd8496264f272f7bcf7da4b0053",  # qwen3
    "d7d4546648af547f256e34ae9d066d57",  # reka
    "2bed1942228a2d3371ff2b3526746a17",  # step3.5
    "66291cf0045c2425a3a667cf3cbb7af2",  # zephyr
    "f67c052ba79fcc7e9d8322a5136709d4",  # pocket
    "50cbca23b69758f321b3da15ade78256",  # pocket_sight
})  # fmt: skip


@lru_cache(maxsize=64)
def is_known(template: str) -> bool:
    return hashlib.sha256(template.strip().encode(errors="surrogatepass")).hexdigest()[:32] in _KNOWN


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    def work(job: bytes) -> bytes:
        template, special_tokens, inputs, most = json.loads(job)
        texts = [render_input(template, special_tokens, TemplateInput(**given), most) for given in inputs]
        return json.dumps(texts).encode()

    return work


if __name__ == "__main__":
    serve(_load)
