"""Ranks that are processes of their own, without a tree: each runs one program, and prints what it found as JSON."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.worker.models.load import load_model


def found_by_ranks(program: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """What each rank's process printed; it is given its arguments as JSON."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(own)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        for own in arguments
    ]
    try:
        return [json.loads(process.communicate(timeout=120)[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


# One process is one rank, for all folders in turn; it prints each row's tokens, every logit, and how much was read.
_READING = """
import json, sys
from pathlib import Path

import torch
from builders.hand_driven import HandDriven
from penstock.worker.models.load import load_model
from penstock.worker.parallel import Parallel

rank, rendezvous, prompts, *folders = json.loads(sys.argv[1])
torch.set_num_threads(1)
ranks = Parallel.join(rank, 2, Path(rendezvous), torch.device("cpu"))
found = []
for folder in folders:
    model = load_model(Path(folder), ranks=ranks)
    driven = HandDriven(model)
    logits = driven.greedy([driven.add(prompt) for prompt in prompts], 16, budget=32)
    found.append([driven.histories, torch.cat(logits).tolist(), model.report.bytes_read])
ranks.leave()
print(json.dumps(found))
"""


def assert_ranks_read_alike(rendezvous: Path, folders: Sequence[Path], prompts: Sequence[Sequence[int]]) -> None:
    """Of two ranks each reads its share of these folders, and two neighbours each give the same."""
    alone = [load_model(folder).report.bytes_read for folder in folders]
    arguments = [[rank, str(rendezvous), prompts, *map(str, folders)] for rank in range(2)]
    for of_rank in found_by_ranks(_READING, arguments):
        for first, second in zip(of_rank[::2], of_rank[1::2], strict=True):
            assert first == second
        assert all(found[2] < 0.7 * whole for found, whole in zip(of_rank, alone, strict=True))
