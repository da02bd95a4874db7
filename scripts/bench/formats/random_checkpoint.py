"""Writes a shape as transformers does, with random weights, for an engine whose exporter reads nothing else.

    python -m bench.formats.random_checkpoint qwen3-30b 4 FOLDER          # its first 4 layers

The whole model lies in memory meanwhile, in bfloat16.
"""

import sys
from pathlib import Path

from ..shapes import PUBLISHED
from ..shapes.shape import Shape, write_config

BOUND = 0.035  # of evenly spread weights, whose standard deviation is then 0.02


def write_checkpoint(shape: Shape, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    write_config(folder, shape)
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    model.tie_weights()
    for name, tensor in model.named_parameters():
        if name.endswith("norm.weight"):
            tensor.data.fill_(1)
        else:
            tensor.data.uniform_(-BOUND, BOUND)
    model.save_pretrained(folder)


if __name__ == "__main__":
    write_checkpoint(PUBLISHED[sys.argv[1]].cut(int(sys.argv[2])), Path(sys.argv[3]))
