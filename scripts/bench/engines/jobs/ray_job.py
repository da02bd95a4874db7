"""A `ray.data` job with transformers: blocks of lines through one actor, written as a folder of JSON files.

Where this Ray has checkpoints, a second start skips the blocks that were written.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from transformers_loop import LINES, answerer


class Answer:
    def __init__(self, name: str) -> None:
        self.answers = answerer(name)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = self.answers(list(batch["body"]))
        return {"custom_id": batch["custom_id"], "text": texts}


def main() -> None:
    source, output, name = sys.argv[1:]
    # The actors of a second start, one of which looks for what is done, would otherwise take all of a small machine's
    # cores, and the tasks that read and write wait forever. Torch's threads are as many as the cores in any case.
    ray.init(num_cpus=max(8, os.cpu_count() or 1), runtime_env={"env_vars": {"OMP_NUM_THREADS": str(os.cpu_count())}})
    with suppress(ImportError):
        from ray.data.checkpoint import CheckpointConfig

        context = ray.data.DataContext.get_current()
        context.checkpoint_config = CheckpointConfig(id_column="custom_id", checkpoint_path=output + ".checkpoint")
    lines = ray.data.read_json(source, lines=True)
    parts = lines.repartition(max(1, lines.count() // LINES))
    Path(output).mkdir(exist_ok=True)
    parts.map_batches(Answer, fn_constructor_args=(name,), batch_size=LINES, concurrency=1).write_json(output)


if __name__ == "__main__":
    main()
