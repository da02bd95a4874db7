"""Opens this rank's folder of kept prefixes, for the options `prefix_cache_dir` and `prefix_cache_size`.

The folder's name is a digest of all that a block's bits depend on besides the tokens in its key: the weights, the code
and the kernels that compute, number formats and the layout of memory, and this rank's share. So what another model,
another processor or another version of Penstock has written can't be found.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.files.prefix_folder import About, PrefixKind, prefix_folder, size_of_folder, too_small
from ...protocol.layer_groups import AboutDisk, media_group
from ...protocol.processes.launch import Launch
from ..description.groups import LayerGroup
from ..disk.disk import WorkerDisk
from ..disk.segment_folder import SegmentFolder
from ..disk.staging import Staging
from ..runner import Runner
from ..weights.files.weight_files import identity
from .model import Model

if TYPE_CHECKING:
    from ..disk.rows_on_disk import RowsOnDisk

_PACKAGE = Path(__file__).parents[2]
_CODE = ("kernels", "worker")  # rooms whose code decides about bits
_FORMAT = 2  # of keys and of what a block holds
_MOST_READERS = 4  # threads: each has cells of its own, and more would wait for the memory
_FIRST_LOOK = 1.0  # seconds of the start for what is in the folder; the rest is found during the first requests
# Options that change the bits of keys, values and states, or that may.
_OPTIONS = (
    *("dtype", "quantization", "kv_cache_dtype", "load_format", "rope_scaling", "block_size", "deterministic"),
    *("tensor_parallel_size", "enable_expert_parallel", "enable_lora", "max_lora_rank", "mm_processor_kwargs"),
)


def open_disk(
    launch: Launch,
    model: Model,
    rank: int,
    groups: Sequence[LayerGroup],
    runner: Runner,
    answer: Callable[[AboutDisk], None],
    fail: Callable[[BaseException], None],
) -> WorkerDisk:
    """The disk of this rank. `fail` gets the error of a thread that can't go on."""
    config, kv_kind = launch.config, model.kv_kind(launch.config.kv_cache_dtype)
    # A card copies for one thread at a time.
    num_readers = min(launch.threads_per_rank, _MOST_READERS) if model.backend.device.kind == "cpu" else 1
    writing, *reading = (_staging(model, runner) for _ in range(1 + num_readers))
    sizes = [writing.block_bytes(number) for number in range(len(groups))]
    if size_of_folder(config) < max(sizes):
        raise too_small(config, max(sizes))
    kind = PrefixKind(prefix_folder(config) / _name(launch, model, rank, kv_kind, groups, sizes))
    kind.hold(About(config.model, rank, config.tensor_parallel_size, model.backend.kernels, kv_kind))
    folder = SegmentFolder(kind.folder, size_of_folder(config), config.prefix_cache_ttl)
    rows = _rows_on_disk(model, runner, folder, media_group(len(groups)))
    disk = WorkerDisk(folder, reading, writing, rank, answer, runner.is_busy, fail, rows)
    disk.start(_FIRST_LOOK)
    return disk


def _staging(model: Model, runner: Runner) -> Staging:
    tiers = [model.backend.second_tier(memory, 1) for memory in runner.memory.groups]
    return Staging(tiers, model.backend.device.computing)


def _rows_on_disk(model: Model, runner: Runner, folder: SegmentFolder, group: int) -> "RowsOnDisk | None":
    if runner.media is None or model.backend.device.kind != "cpu":
        return None
    from ..disk.rows_on_disk import RowsOnDisk

    [rows] = model.backend.on_host([runner.media.rows])
    return RowsOnDisk(folder, group, runner.media, rows)


def _name(
    launch: Launch, model: Model, rank: int, kv_kind: str, groups: Sequence[LayerGroup], block_bytes: Sequence[int]
) -> str:
    config, backend = launch.config, model.backend
    facts: list[Any] = [
        *(_FORMAT, _code(), identity(Path(launch.model_folder)), rank),
        *(backend.kernels, backend.kernels_digest, backend.device.name),
        *(model.dtype.name, kv_kind, model.stretches),
        *(repr(groups), block_bytes, repr(model.config.vision)),
        {name: getattr(config, name) for name in _OPTIONS},
        *([identity(Path(launch.draft_folder))] if launch.draft_folder else []),
    ]
    return hashlib.blake2b(msgspec.json.encode(facts), digest_size=16).hexdigest()


@cache
def _code() -> str:
    """A digest of the sources that decide about bits."""
    digest = hashlib.blake2b(digest_size=16)
    for room in _CODE:
        for path in sorted((_PACKAGE / room).rglob("*.py")):
            digest.update(os.fsencode(path.relative_to(_PACKAGE)) + path.read_bytes())
    return digest.hexdigest()
