"""What the steps of an 8B model spend their time on: answers of 1 and 256 rows, and a prompt of 2k.

The runner and the scheduler run in this process, with two steps in flight as in a tree. Steps are timed without the
profiler, which slows the host down, and their kernels with it.
"""

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from bench.models import SHAPES, write_config

from penstock.engine.admission.limits import Limits
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

from . import Figure, Setting

_BLOCK_SIZE = 32
_LONGEST = 10  # kernels that are named
_BUSY = {"cuda": ("kernel", "gpu_memcpy", "gpu_memset"), "cpu": ("cpu_op",)}  # as the profiler calls them


class Sizes(NamedTuple):
    rows: int
    prompt: int
    answer: int
    steps: int  # that are timed, and again profiled


def profiles(setting: Setting) -> Iterator[Figure]:
    model = _loaded(setting, setting.sized("8b", "small"))
    for sizes in setting.sized((Sizes(1, 512, 128, 30), Sizes(256, 512, 128, 30)), (Sizes(3, 20, 30, 3),)):
        drive = Drive(setting, sizes, model)
        with _learning(setting):  # as a tree does while it warms up
            drive.until_all_answer()
            drive.steps(sizes.steps)  # captures what is to be captured
        yield from _profiled(setting, f"{sizes.rows} rows decode", partial(drive.steps, sizes.steps), sizes.steps)
        del drive
    sizes = Sizes(1, setting.sized(2048, 40), 8, 1)
    for _ in range(2):  # one before, which compiles and is tuned
        drive = Drive(setting, sizes, model)
        with _learning(setting):
            drive.until_all_answer()
    prompts = [Drive(setting, sizes, model) for _ in range(2)]
    yield from _profiled(setting, f"a prompt of {sizes.prompt:,}", lambda: prompts.pop().until_all_answer(), 1)


class Drive:
    """A runner that is always given one step more than it has finished."""

    def __init__(self, setting: Setting, sizes: Sizes, model: Model) -> None:
        length = sizes.prompt + sizes.answer
        num_blocks = sizes.rows * (-(-length // _BLOCK_SIZE) + 1)
        table = SlotTable(sizes.rows, length, [num_blocks], _BLOCK_SIZE, model.vocab_size, model.backend.device)
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
            ),
            shares_prefixes=False,
        )
        self.launched: deque[Callable[[], StepResult]] = deque()
        self.rows_of_step, self.num_rows = 0, sizes.rows
        for number in range(sizes.rows):
            self.scheduler.add(_prompt(number, sizes))

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


def _loaded(setting: Setting, shape: str) -> Model:
    """With random weights."""
    folder = setting.folder / f"{shape}-for-steps"
    folder.mkdir(exist_ok=True)
    write_config(folder, {**SHAPES[shape], "dtype": "bfloat16"})
    return load_model(folder, device=TensorDevice(torch.device(setting.device)), load_format="dummy")


def _learning(setting: Setting) -> AbstractContextManager[None]:
    if setting.device == "cpu":
        return nullcontext()
    from penstock.kernels.triton.launch.tuning import learning

    return learning(setting.folder / "triton")


def _prompt(number: int, sizes: Sizes) -> Prompt:
    params = SamplingParams(temperature=0, max_tokens=sizes.answer, eos_token_id=[])
    ids = column((31 * number + 7 * place) % 4000 + 10 for place in range(sizes.prompt))
    return Prompt(number, ids, params, seed=number, arrival_time=0.0)


def _no_mask(step: int) -> MaskFrame:
    raise AssertionError(f"step {step} was not masked")


def _profiled(setting: Setting, name: str, run: Callable[[], None], steps: int) -> Iterator[Figure]:
    """Of a run of so many steps, done twice: a step's time, the share of it that the card idles, and its kernels."""
    start = time.perf_counter()
    run()
    seconds = (time.perf_counter() - start) / steps
    yield Figure(f"{name}, a step", seconds * 1e6, "µs", None, "two in flight")
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if setting.device == "cuda" else activity.CPU]) as profile:
        run()
        if setting.device == "cuda":
            torch.cuda.synchronize()
    path = setting.folder / "profile.json"
    profile.export_chrome_trace(str(path))
    busy, longest = busy_seconds(path, _BUSY[setting.device])
    yield Figure(f"{name}, idle", max(0.0, 1 - busy / steps / seconds), "of a step")
    for kernel, taken in longest:
        yield Figure(f"  {kernel[:48]}", taken / steps * 1e6, "µs", taken / busy, "the kernels' time")


def busy_seconds(path: Path, categories: tuple[str, ...]) -> tuple[float, list[tuple[str, float]]]:
    """In which the device was busy, and the kernels that took most of them."""
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
