"""Where the time of an encoder of pictures goes, kernel by kernel, next to a text part of one layer."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from penstock.kernels.cpu.program import Program
from penstock.protocol.media import Encode
from penstock.protocol.messages import StepPlan
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model

from ..harness import Quantization, seconds_of

_TEXT = dict(num_hidden_layers=1, intermediate_size=256, vocab_size=512, num_attention_heads=16, num_key_value_heads=2)
# As published: the architecture, how wide the text part is, and the encoder.
SHAPES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "qwen3-vl-2b": (
        "Qwen3VLForConditionalGeneration", 2048,
        dict(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, patch_size=16, out_hidden_size=2048,
             deepstack_visual_indexes=[5, 11, 17]),
    ),
    "qwen2.5-vl-3b": (
        "Qwen2_5_VLForConditionalGeneration", 2048,
        dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, patch_size=14, out_hidden_size=2048,
             window_size=112, fullatt_block_indexes=[7, 15, 23, 31]),
    ),
}  # fmt: skip


def run(
    shape: Literal["qwen3-vl-2b", "qwen2.5-vl-3b"] = "qwen3-vl-2b", quantization: Quantization = "int8",
    height: int = 768, width: int = 1024, threads: int = torch.get_num_threads(),
) -> None:  # fmt: skip
    kernels = Kernels()
    model = loaded(shape, None if quantization == "none" else quantization, threads)
    vision = model.config.vision
    unit = vision.merge * vision.patch_size
    height, width = (round(side / unit) * unit for side in (height, width))
    pixels = torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8).numpy().tobytes()
    num_rows = height * width // unit**2
    media = model.kept_media(num_rows)
    times = []
    for number in range(5):
        kernels.is_counting = number == 4
        whole = Encode(number, 0, 1, "image", pixels, (1, height, width), num_rows, work=1)
        plan = StepPlan(number, b"", b"", [], encodes=[whole])
        if number:
            plan.dropped_entries = (number - 1).to_bytes(4, "little")
        times.append(seconds_of(lambda plan=plan: media.apply(plan)))
    print(f"{model.backend.device.name}, {threads} threads, {model.backend.kernels}")
    print(f"{shape}, {quantization}: {width} × {height}, {num_rows * vision.merge**2} patches, {num_rows} rows")
    print(f"first {times[0] * 1000:.0f} ms, then {min(times[1:4]) * 1000:.0f} ms; of which by kernel:")
    for kernel, seconds in sorted(kernels.seconds.items(), key=lambda each: -each[1]):
        print(f"  {kernel:24} {seconds * 1000:8.1f} ms")


def loaded(shape: str, quantization: str | None, threads: int) -> Model:
    architecture, hidden, vision = SHAPES[shape]
    text = {**_TEXT, "hidden_size": hidden, "head_dim": 128, "rope_scaling": {"mrope_section": [24, 20, 20]}}
    config = {"architectures": [architecture], "text_config": text, "vision_config": vision, "dtype": "bfloat16"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return load_model(Path(folder), load_format="dummy", quantization=quantization, num_threads=threads)


class Kernels:
    """Seconds of each kind of call, while they are counted: stages are then replayed call by call."""

    def __init__(self) -> None:
        self.is_counting = False
        self.seconds: dict[str, float] = defaultdict(float)
        self._replaying = Program.replaying
        Program.replaying = lambda program, calls: self._watched(program, calls)  # type: ignore[method-assign]

    def _watched(self, program: Program, calls: Sequence[tuple[str, int]]) -> Callable[[], None]:
        whole = self._replaying(program, calls)
        single = [(call[0].removeprefix("penstock_"), self._replaying(program, [call])) for call in calls]

        def replay() -> None:
            if self.is_counting:
                for name, run in single:
                    self.seconds[name] += seconds_of(run)
            else:
                whole()

        return replay
