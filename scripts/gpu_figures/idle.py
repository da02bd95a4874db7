"""How long a card waits for the host while many sequences decode, and what it spends its time on.

The runner and the scheduler run in this process, two steps in flight as in a tree. The time of steps is taken without
the profiler, which slows the host down; what the kernels of a step take is taken with it.
"""

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench.models import SHAPES, write_config

from penstock.engine.admission.limits import DraftLimits, Limits
from penstock.engine.loop import STEPS_IN_FLIGHT
from penstock.engine.scheduler import Scheduler
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.messages import MaskFrame, Prompt, StepResult
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.processes.trace import Trace
from penstock.protocol.wire import column, values
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.runner import Runner
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model
from penstock.worker.steps.slots import SlotTable

from .setting import Figure, Part, Setting

_BLOCK_SIZE = 32
_LONGEST = 10  # kernels that are named
_BUSY = {"cuda": ("kernel", "gpu_memcpy", "gpu_memset"), "cpu": ("cpu_op",)}  # as the profiler calls them


class Sizes(NamedTuple):
    rows: int
    prompt: int
    answer: int
    steps: int  # that are timed, and again profiled


def parts(setting: Setting) -> Iterator[Part]:
    sizes = setting.sized(Sizes(256, 512, 256, 40), Sizes(4, 20, 40, 4))
    yield Part(f"{sizes.rows} rows decode", partial(_measured, setting, sizes))


class Drive:
    """A runner that is always given one step more than it has finished."""

    def __init__(self, setting: Setting, sizes: Sizes, model: Model, draft_limits: DraftLimits | None = None) -> None:
        length = sizes.prompt + sizes.answer
        num_blocks = sizes.rows * (-(-length // _BLOCK_SIZE) + 1)
        device = model.backend.device
        table = SlotTable(sizes.rows, length, [num_blocks], _BLOCK_SIZE, model.vocab_size, device)
        memory, ranks, trace = model.plain_memory(num_blocks, _BLOCK_SIZE), Parallel(), Trace(None, "bench")
        fast = model.fast_decode(memory, table, ranks, trace)
        ways = dict(fast_decode=fast, batch=model.backend.batch, sampling=model.backend.sampling, sample=model.sample)
        self.runner = Runner(model.forward_pass, memory, table, ranks, trace=trace, **ways)
        self.scheduler = Scheduler(
            Limits(
                groups=(GroupPlan("full", 1, 1, num_blocks),),
                block_size=_BLOCK_SIZE,
                max_model_len=length,
                max_num_seqs=sizes.rows,
                max_num_batched_tokens=setting.sized(8192, 512),
                draft_limits=draft_limits,
            ),
            shares_prefixes=False,
        )
        self.launched: deque[Callable[[], StepResult]] = deque()
        self.rows_of_step = 0
        for number in range(sizes.rows):
            self.scheduler.add(_prompt(number, sizes))

        self.num_rows = sizes.rows

    def until_all_answer(self) -> None:
        while self.rows_of_step < self.num_rows:
            self.steps(1)

    def steps(self, count: int) -> None:
        for _ in range(count):
            while len(self.launched) < STEPS_IN_FLIGHT and (plan := self.scheduler.plan()) is not None:
                self.rows_of_step = len(plan.slots) // 4 if set(values(plan.num_tokens)) == {1} else 0
                self.launched.append(self.runner.launch(plan, _no_mask))
            self.scheduler.take_ends()
            self.scheduler.finish(self.launched.popleft()())


def loaded(setting: Setting, shape: str, quantization: str | None = None, **options: Any) -> Model:
    """With random weights."""
    folder = setting.folder / f"{shape}-for-steps"
    folder.mkdir(exist_ok=True)
    write_config(folder, {**SHAPES[shape], "dtype": "bfloat16"})
    device = TensorDevice(torch.device(setting.device))
    return load_model(folder, device=device, load_format="dummy", quantization=quantization, **options)


def _prompt(number: int, sizes: Sizes) -> Prompt:
    params = SamplingParams(temperature=0, max_tokens=sizes.answer, eos_token_id=[])
    ids = column((31 * number + 7 * place) % 4000 + 10 for place in range(sizes.prompt))
    return Prompt(number, ids, params, seed=number, arrival_time=0.0)


def _no_mask(step: int) -> MaskFrame:
    raise AssertionError(f"step {step} was not masked")


def _measured(setting: Setting, sizes: Sizes) -> Iterator[Figure]:
    drive = Drive(setting, sizes, loaded(setting, setting.sized("0.6b", "small")))
    with setting.clock().learning():  # as a tree does while it warms up
        drive.until_all_answer()
        drive.steps(sizes.steps)  # captures what is to be captured
    start = time.perf_counter()
    drive.steps(sizes.steps)
    seconds = (time.perf_counter() - start) / sizes.steps
    yield Figure(f"{sizes.rows} rows decode, a step", seconds * 1e6, "µs", None, "two in flight")
    busy, longest = _profiled(setting, partial(drive.steps, sizes.steps))
    busy_a_step = busy / sizes.steps
    yield Figure(f"{sizes.rows} rows decode, idle", max(0.0, 1 - busy_a_step / seconds), "of the time")
    for name, taken in longest:
        yield Figure(f"  {name[:48]}", taken / sizes.steps * 1e6, "µs", taken / busy, "the kernels' time")


def _profiled(setting: Setting, run: Callable[[], None]) -> tuple[float, list[tuple[str, float]]]:
    """Seconds in which the device was busy, and the kernels that took most of them."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if setting.device == "cuda" else activity.CPU]) as profile:
        run()
        if setting.device == "cuda":
            torch.cuda.synchronize()
    path = (setting.traces or setting.folder) / "profile.json"
    profile.export_chrome_trace(str(path))
    return busy_seconds(path, _BUSY[setting.device])


def busy_seconds(path: Path, categories: tuple[str, ...]) -> tuple[float, list[tuple[str, float]]]:
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") in categories]
    if not events:
        raise RuntimeError(f"the profiler saw none of {', '.join(categories)}")
    by_name: Counter[str] = Counter()
    busy, last_end = 0.0, 0.0
    for event in sorted(events, key=lambda event: event["ts"]):
        by_name[event["name"]] += event["dur"]
        # What ran beside another counts once.
        end = event["ts"] + event["dur"]
        busy += max(0.0, end - max(event["ts"], last_end))
        last_end = max(last_end, end)
    return busy / 1e6, [(name, taken / 1e6) for name, taken in by_name.most_common(_LONGEST)]
