"""The messages between a client and the daemon on a unix stream socket, in the order in which they are sent.

A frame is its length (four bytes, little endian) and one msgspec message. The client sends its caller's prompts
unchanged; the daemon renders templates and tokenizes. The client numbers its requests from 0, and never uses the number
of a running request again.
"""

import hashlib
import os
import socket
import struct
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .errors import Failure, PenstockError
from .fingerprint import PROTOCOL
from .memory_plan import MemoryPlan
from .messages import Said
from .options.config import EngineConfig
from .outputs import CompletionOutput, LogprobsByToken, RequestMetrics
from .parameters.beams import BeamSearchParams
from .parameters.pooling import PoolingParams
from .parameters.sampling import SamplingParams
from .stats import Stats
from .wire import Message, Part

# Longest frames from clients: before they have attached, for requests and conversations, and for everything else.
LONGEST_FIRST_FRAME = 64 << 10
LONGEST_FRAME = 32 << 20
LONGEST_OTHER_FRAME = 64 << 10
# Longest frame from the daemon: log-probabilities are long.
LONGEST_REPLY = 1 << 30
MOST_REQUESTS = 1024  # in one `Ask`
MOST_NUMBERS = 4096  # in one `Drop` or `Cancel`
# While the daemon works for a client, it sends `StillWorking` this often.
WORD_SECONDS = 0.5
_HEADER = struct.Struct("<I")


# --- client → daemon -------------------------------------------------------------------------------------------------


class Attach(Message):
    """The first frame of a client that wants a model."""

    protocol: str
    model: str  # a name from the daemon, or the folder or repository of one of its models
    path: str  # as an absolute path, if it is a path
    options: dict[str, Any]  # given by the caller, under our own names
    seed: int | None = None  # for requests of this client that have none
    may_add: bool = False  # the daemon may add a model that it doesn't know


class WireConversation(Part):
    messages: list[Any]
    tools: list[Any] | None
    chat_template: str | None
    options: dict[str, Any]


class WireRequest(Part):
    """One prompt: text, token ids, or a conversation."""

    number: int
    params: int  # index into `Ask.params`
    text: str | None = None
    token_ids: bytes | None = None
    conversation: WireConversation | None = None
    is_streamed: bool = False
    media: bytes = b""  # its pictures and videos, in the front end's own form
    said: list[Said] = []  # by its samples, if the answer goes on
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None  # instead of the parameters'
    # `SaidMore` comes each time that a sample has said so many more tokens; 0: never.
    delta_tokens: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    receipt: str = ""  # instead of all that: of an answer that is to be judged
    expected: list[bytes] = []  # int32, by sample: what the answer is expected to say
    second_text: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0  # of a pair's ids, where the second text begins


class Ask(Message):
    """Requests, with each set of parameters once."""

    requests: list[WireRequest]
    params: list[SamplingParams]
    beams: BeamSearchParams | None = None  # for all the requests
    pooling: PoolingParams | None = None  # likewise


class PackedAsk(Message, tag="Ask"):
    """`Ask` as the daemon reads it: it decodes one request at a time, so an invalid one fails alone."""

    requests: msgspec.Raw
    params: msgspec.Raw
    beams: msgspec.Raw = msgspec.Raw(b"\xc0")
    pooling: msgspec.Raw = msgspec.Raw(b"\xc0")


class Drop(Message):
    """End these requests; nobody waits for them any more."""

    numbers: list[int]


class Cancel(Message):
    """End these requests; each still gets a last delta with its output so far."""

    numbers: list[int]


class AskStats(Message):
    query: int


class AskRender(Message):
    query: int
    conversation: WireConversation
    add_generation_prompt: bool


class PackedRender(Message, tag="AskRender"):
    """`AskRender` as the daemon reads it."""

    query: int
    conversation: msgspec.Raw
    add_generation_prompt: bool


class AskLoad(Message):
    query: int
    name: str
    path: str


class AskUnload(Message):
    query: int
    name: str


class AskAdapters(Message):
    query: int


class AskStatus(Message):
    """Sent by `penstock ps` and `status`. Like the messages below, it needs no `Attach`."""

    query: int


class AskReload(Message):
    """Read the configuration file again."""

    query: int


class AskUnloadModel(Message):
    """End a model's processes now, if nobody uses it."""

    query: int
    name: str


class AskStop(Message):
    """End the daemon. Running requests get this many seconds, or the owner's setting."""

    query: int
    seconds: float | None


_Others = AskStats | AskLoad | AskUnload | AskAdapters | AskStatus | AskReload | AskUnloadModel | AskStop
Question = AskRender | _Others
PackedQuestion = PackedRender | _Others
ToDaemon = Attach | PackedAsk | Drop | Cancel | PackedQuestion


# --- daemon → client -------------------------------------------------------------------------------------------------


class Attached(Message):
    """The model is loaded, and the client holds a lease on it until it disconnects."""

    model: str  # the daemon's name for it
    plan: MemoryPlan
    defaults: SamplingParams
    folder: str
    tokenizer_folder: str
    enable_lora: bool
    config: EngineConfig  # of its tree


class Declined(Message):
    """This client gets no model, or has lost the one it had. `is_disagreement`: the model could be served with other
    options. Anything else is a failure."""

    failure: Failure
    is_disagreement: bool


class OutputDelta(Part):
    """The new output of a request: since the last delta if it is streamed, else all of it."""

    number: int
    samples: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None
    num_cached_tokens: int
    num_input_image_tokens: int = 0
    num_input_video_tokens: int = 0
    prompt: str | None = None  # the rendered conversation; with the first delta
    prompt_token_ids: bytes = b""  # with the first delta
    error_code: int = 200
    error_msg: str | None = None
    prompt_logprobs: list[LogprobsByToken | None] | None = None
    notice: str | None = None
    receipt: str | None = None
    vectors: bytes = b""  # float32: the numbers that it asked for
    shape: list[int] = []  # of these


class OutputDeltas(Message):
    deltas: list[OutputDelta]


class SaidMore(Message):
    """What the samples of a request that isn't streamed have said since the last one. The last delta has all of it."""

    number: int
    said: list[Said]


class StillWorking(Message):
    """The daemon is working for this client: sent at once after `Attach`, then every `WORD_SECONDS`."""


class Failed(Message):
    """These requests have ended without a last delta, because their tree has died."""

    numbers: list[int]
    failure: Failure


class ModelStatus(Part):
    name: str
    model: str
    state: str  # unloaded, loading, ready, restarting, failed, unloading; leaving: another has its name, or none
    clients: int
    since: float  # in this state, Unix seconds
    restarts: int = 0
    taken_bytes: int = 0  # planned for all its ranks: weights, KV memory, rows of media, adapters
    plan: MemoryPlan | None = None
    stats: Stats | None = None
    error: str = ""  # why it isn't loaded or is restarting
    last_error: str = ""  # the same, kept after the model has come back
    last_error_time: float = 0.0  # Unix seconds


class DaemonStatus(Part):
    pid: int
    version: str
    started: float
    address: str
    http: str
    clients: int
    is_draining: bool
    log: str  # a file; empty in the foreground, which logs to `said_to`
    models: list[ModelStatus]
    num_running: int = 0  # requests
    drain: float = 0.0  # seconds that running requests get when the daemon ends
    said_to: str = ""  # the file or terminal of its standard error, if known


class Answer(Message):
    """The answer to the question with this number."""

    query: int
    failure: Failure | None = None
    text: str = ""
    names: list[str] = []
    folders: dict[str, str] = {}  # of adapters, by name
    stats: Stats | None = None
    status: DaemonStatus | None = None


FromDaemon = Attached | Declined | StillWorking | OutputDeltas | SaidMore | Failed | Answer


# --- frames, and whose they are --------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()


def frame(message: Message) -> bytes:
    body = _encoder.encode(message)
    return _HEADER.pack(len(body)) + body


def frame_length(header: bytes, longest: int) -> int:
    """The length of the body; raises if it is longer than any peer would send."""
    length: int = _HEADER.unpack(header)[0]
    if length > longest:
        raise PenstockError(f"A message of {length:,} bytes was announced, and {longest:,} are the most here.")
    return length


HEADER_BYTES = _HEADER.size


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, as the kernel reports them."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _ = struct.unpack("3i", packed)
    return pid, user


def is_own_user(connection: socket.socket) -> bool:
    return peer(connection)[1] == os.getuid()


def _attach_protocol() -> str:
    own = [Path(__file__), Path(__file__).with_name("outputs.py")]
    return hashlib.blake2b(PROTOCOL.encode() + b"".join(path.read_bytes() for path in own), digest_size=8).hexdigest()


ATTACH_PROTOCOL = _attach_protocol()
