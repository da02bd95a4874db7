"""The process of a worker without a model, chosen by `load_format="stand-in"`.

It speaks the whole protocol, so that engine, detokenizer and front end are tested and measured without torch.
`runner.py` executes the steps.
"""

import os
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.adapter_messages import AdapterLoaded, LoadAdapter
from ...protocol.files.model_file import read_model_json
from ...protocol.layer_groups import BlocksStored, GroupPlan
from ...protocol.media import MediaPlan
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Allocate, Allocated, Drafts, Loaded, MaskFrame, StepPlan, Stop, WorkerInbox
from ...protocol.options.config import EngineConfig
from ...protocol.processes.child import Child, run_child
from ...protocol.processes.heartbeat import Heartbeat, WatchedInbox
from ...protocol.processes.launch import Launch
from ...protocol.processes.sockets import Outbox
from ...protocol.wire import values
from .runner import VOCAB_SIZE, StandInWorker

_CONTEXT = 4096
_MOST_BLOCKS = 1 << 16
_MEDIA_ROWS = 1 << 16
_ENCODER_LAYERS = 4
_MOST_PATCHES = 1 << 16
_CELLS_PER_GIB = 1024  # of a second tier, as if a block needed a MiB


def main(child: Child) -> None:
    heartbeat = Heartbeat.of(child.role, child.launch.heartbeats)
    inbox = WatchedInbox[WorkerInbox](child.directory, f"worker{child.rank}", WorkerInbox, heartbeat)
    engine = Outbox(child.directory, "engine")
    plan = _plan(child.launch)
    engine.send(Loaded(child.rank, plan))
    worker: StandInWorker | None = None
    frames: dict[int, MaskFrame] = {}
    waiting: deque[WorkerInbox] = deque()  # what came while a mask was awaited

    def await_mask(step: int) -> MaskFrame:
        while step not in frames:
            later = inbox.receive()
            if isinstance(later, MaskFrame):
                frames[later.step] = later
            else:
                waiting.append(later)
        return frames.pop(step)

    while not isinstance(message := waiting.popleft() if waiting else inbox.receive(), Stop):
        if isinstance(message, Allocate):
            worker = _worker(child.launch, plan, message)
            engine.send(Allocated(child.rank))
        elif isinstance(message, MaskFrame):
            frames[message.step] = message
        elif isinstance(message, LoadAdapter):
            engine.send(AdapterLoaded(child.rank, message.adapter))
        elif isinstance(message, StepPlan) and worker is not None:
            heartbeat.begin_step(sum(values(message.num_tokens)))
            for store in message.disk.stores if message.disk is not None else ():
                engine.send(BlocksStored(child.rank, store.number))  # there is nothing to keep
            if child.rank == 0 and (roomy := [row for row in values(message.masked) if message.has_room(row)]):
                engine.send(Drafts(message.step, roomy, [b""] * len(roomy)))  # it drafts nothing
            result = worker.step(message, await_mask)
            heartbeat.end_step()
            if child.rank == 0:
                engine.send(result)


def _plan(launch: Launch) -> MemoryPlan:
    """Plan the memory of a model that needs none."""
    config = launch.config
    model = _model_config(Path(launch.model_folder))
    vocab_size, context = model.get("vocab_size", VOCAB_SIZE), model.get("max_position_embeddings", _CONTEXT)
    max_model_len = config.max_model_len or context
    blocks = config.step_limits("cpu")[0] * -(-max_model_len // config.block_size)
    num_blocks = config.num_gpu_blocks_override or min(blocks, _MOST_BLOCKS)
    return MemoryPlan(
        device="cpu",
        device_name="stand-in",
        weight_bytes=0,
        activation_bytes=0,
        available_bytes=0,
        groups=[GroupPlan("full", 0, 0, num_blocks, num_cpu_blocks=int((config.swap_space or 0) * _CELLS_PER_GIB))],
        max_model_len=max_model_len,
        model_context=context,
        vocab_size=vocab_size,
        dtype="none",
        media=_media_plan(config, model),
        kv_dtype="none",
    )


def _model_config(folder: Path) -> dict[str, Any]:
    """The model's config.json merged with its text part; empty if there is none."""
    try:
        config = read_model_json(folder / "config.json")
    except FileNotFoundError:
        return {}
    return {**config, **config.get("text_config", {})}


def _media_plan(config: EngineConfig, model: dict[str, Any]) -> MediaPlan | None:
    """The plan for a model with vision: rows of one byte each, so that `mm_cache` is a number of rows."""
    if "vision_config" not in model or config.enable_mm is False:
        return None
    return MediaPlan(config.mm_cache or _MEDIA_ROWS, 1, _ENCODER_LAYERS, _MOST_PATCHES, _MOST_PATCHES)


def _worker(launch: Launch, plan: MemoryPlan, allocate: Allocate) -> StandInWorker:
    return StandInWorker(
        num_slots=launch.config.step_limits(plan.device)[0],
        groups=[
            msgspec.structs.replace(group, num_blocks=num_blocks, num_cpu_blocks=num_cells)
            for group, num_blocks, num_cells in zip(
                plan.groups, allocate.num_blocks, allocate.num_cpu_blocks, strict=True
            )
        ],
        block_size=launch.config.block_size,
        max_model_len=allocate.max_model_len,
        vocab_size=plan.vocab_size,
        media=plan.media,
        verify=bool(os.environ.get("PENSTOCK_STAND_IN_VERIFY")),
    )


if __name__ == "__main__":
    run_child("worker", main)
