"""OpenVINO GenAI as an engine that sees: its continuous-batching pipeline, which takes pictures beside conversations.

Its format is made by optimum-intel's exporter; the encoder's weights are in int8 as well. A history keeps what was made
of its pictures, so a further turn brings none.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from ..openvino import EXPORT, OpenVino
from .look import Look, SeeingEngine, Seen, serve_looks


class SeeingOpenVino(OpenVino, SeeingEngine):
    def __init__(self) -> None:
        super().__init__()
        self._histories: dict[int, Any] = {}  # by picture

    def prepare(self, checkpoint: Path, folder: Path, quantization: str) -> None:
        exporter = Path(sys.executable).with_name("optimum-cli")
        words = ["export", "openvino", "--model", str(checkpoint), "--task", "image-text-to-text"]
        subprocess.run([str(exporter), *words, *EXPORT[quantization], str(folder)], check=True)

    def look(self, looks: list[Look]) -> list[Seen]:
        import openvino
        import openvino_genai as genai

        histories, pictures, configs = [], [], []
        for each in looks:
            begun = self._histories.get(each.picture)
            known = begun.get_messages() if begun is not None else []
            history = begun if begun is not None and len(known) < len(each.turns) else genai.ChatHistory()
            is_new = history is not begun
            for role, text in each.messages[0 if is_new else len(known) :]:
                history.append({"role": role, "content": text})
            self._histories[each.picture] = history
            histories.append(history)
            pictures.append([openvino.Tensor(each.pixels[None])] if is_new else [])
            config = genai.GenerationConfig()
            config.max_new_tokens, config.ignore_eos, config.do_sample = each.count, True, False
            configs.append(config)
        results = self._pipeline.generate(histories, images=pictures, generation_config=configs)
        # Of a batch's tokens it counts all together.
        num_tokens = results[0].perf_metrics.get_num_generated_tokens() // len(results)
        return [Seen(num_tokens, each.perf_metrics.get_num_input_tokens()) for each in results]


if __name__ == "__main__":
    serve_looks(SeeingOpenVino())
