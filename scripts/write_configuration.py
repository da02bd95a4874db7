"""Writes docs/configuration.md from the fields that it describes, so that the page and the options cannot differ.

    python scripts/write_configuration.py            # writes the page
    python scripts/write_configuration.py --check    # says whether it is stale, by its exit status

A row is a field of `EngineConfig` or `SamplingParams`: name, default, what its check takes, its sentence. Knows no
field in particular but the first of each group, before which a heading stands.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from penstock.protocol.fields.described import rules_of
from penstock.protocol.options import config, foreign_options
from penstock.protocol.parameters import sampling

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

# A group begins with this field and ends before the next one's.
ENGINE_GROUPS = {
    "model": "The model and its numbers",
    "max_model_len": "Lengths, ranks and steps",
    "gpu_memory_utilization": "Memory for keys and values",
    "kv_cache_ratio": "Who may enter a step",
    "use_warmup": "How it computes",
    "seed": "Requests and names",
    "enable_lora": "LoRA adapters",
    "enable_mm": "Pictures and videos",
    "connect": "The daemon",
    "enforce_eager": "Details",
    "limit_prompt_chars": "Limits at the door",
    "trace": "To look inside",
}
# What is to be said before the table of the group that begins with this field.
NOTES = {
    "gpu_memory_utilization": """\
Without `kv_cache_memory`, a card's memory is filled as `gpu_memory_utilization` says. On a CPU, KV memory is then what
`max_num_seqs` requests of `max_model_len` tokens need, but no more than 2 GiB, than a quarter of the memory that is
free at the start (limits of control groups counted), or than the larger of 256 MiB and four times the weights. A
`max_model_len` that was given always gets what one request of it needs. The memory is touched in the background once
the model is ready.

With `swap_space`, blocks that make room for others are kept in CPU memory, and come back when their prefix is asked for
again or their request goes on; what comes back counts as cached. That memory is taken at the start, by each rank, and
must be free beside all else. It is meant for GPUs, and works on a CPU as well, where the pool of blocks is kept small.

Where a model's layers keep different things (some all tokens, some a window of the last ones, some a state of fixed
size: [layer-groups.md](layer-groups.md)), each kind has blocks of its own, and the table of a start (`-v`) shows what
each takes. `kv_cache_memory` is then all of them together, and `num_gpu_blocks_override` the blocks of the kind with
the longest contexts; the others get what fits to them. `swap_space` is shared out as the memory is. A window needs its
own tokens and those of a step (`max_num_batched_tokens`), whatever `max_model_len` is, so where memory for one request
is short, smaller steps help, too.

With `prefix_cache_ttl` a block that no request has used for so many seconds is not found any more, also where there is
room for it, and neither is its copy in CPU memory. Every use renews it, and it is in use as long as a request that runs
holds it. Answers are the same either way.
""",
    "enable_mm": """\
How to ask about pictures is in [pictures.md](pictures.md). Nothing needs to be set: a model that sees does, one that
doesn't refuses pictures. `enable_mm=False` leaves the encoder out, which saves its memory. A picture's rows stay in
memory (`mm_cache`) until others need the room, so the same picture in many requests is encoded once. While answers are
streamed, a step encodes for about as long as it may compute prompts; `mm_encoder_budget` sets a number instead.
""",
}
SAMPLING_GROUPS = {
    "temperature": "Choosing tokens",
    "max_tokens": "When an answer ends",
    "bad_words": "Tokens wanted and unwanted",
    "seed": "Samples and log-probabilities",
    "skip_special_tokens": "Text",
    "priority": "Order and company",
    "reasoning_max_tokens": "Thoughts, and the shape of an answer",
}

HEAD = """\
# Configuration

An option of the engine goes to `LLM`, with the same name and meaning to the command line:

```python
from penstock import LLM, SamplingParams

llm = LLM("pocket", max_model_len=2048, kv_cache_memory="256MiB", quiet=True)
params = SamplingParams(temperature=0, max_tokens=16, stop=["\\n\\n"])
print(llm.chat([{"role": "user", "content": "What is 2 + 3?"}], params)[0].outputs.text)
```

```sh
penstock generate pocket "What is 2 + 3?" --max-model-len 2048 --kv-cache-memory 256MiB --temperature 0 --max-tokens 16
```

None leaves the choice to Penstock. A value that cannot be meant raises `ConfigError` (an option) or `RequestError` (a
sampling parameter) in the line where it is written; an unknown name raises `TypeError` with the nearest known one. On
the command line an option that is on or off is `--enable-prefix-caching` or `--no-enable-prefix-caching`.

This page is written by `scripts/write_configuration.py` from the fields themselves.
"""

OTHERS = """\
## Options of other engines

So that scripts written for them run, these are accepted and have no effect here:
{accepted}

These mean what they mean in FastDeploy:

| option | here |
| --- | --- |
| `tool_parser` | `tool_call_parser` |
| `use_cudagraph=False` | `enforce_eager=True` |
| `graph_optimization_config={{"use_cudagraph": …}}` | `enforce_eager` |
| `graph_optimization_config={{"cudagraph_capture_sizes": […]}}` | `graph_batch_sizes`; other keys have no effect |
| `load_choices="default"`, `"default_v1"`, `"dummy"` | `load_format="auto"`, `"dummy"` |
| `enable_early_stop=True` | `early_stop_config={{}}`; refused beside an `early_stop_config` that says otherwise |
| `quantization={{"dense_quant_type": …, "moe_quant_type": …}}` | `quantization={{"*": …, "*.experts.*": …}}` |
| `mm_processor_kwargs={{"image_min_pixels": …, "video_fps": …}}` | of pictures or videos alone |

These are refused with a sentence unless they ask for nothing:
"""

ENVIRONMENT = """\
## Environment

| variable | default | meaning |
| --- | --- | --- |
| `PENSTOCK_CACHE` | `~/.cache` | converted tokenizers, packed weights |
| `PENSTOCK_CPU_VARIANT` | the processor's best | which [native kernels](cpu-kernels.md) compute: `avx2`, …, or `none` |
| `PENSTOCK_GRAPHS` and its like | | a GPU's [special ways](gpu.md#to-find-out-what-is-wrong), each off (0) or on (1) |
| `PENSTOCK_LOG_DIR` | `$XDG_STATE_HOME`, else `~/.local/state` | one log file a process tree; the newest 40 are kept |
| `PENSTOCK_LOG` | | `warning` silences tables, bars and notices, as `quiet=True` does; `verbose` does as `-v` |
| `PENSTOCK_RUNTIME_DIR` | `$XDG_RUNTIME_DIR`, else the temporary folder | where the private sockets of a tree lie |
| `BFC_MEM_RATIO` | | `gpu_memory_utilization`, where that is not given |
| `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` | | where [downloads](offline.md) lie, whether any are made, as whom |

In the folder that one of these variables names, Penstock writes to `penstock/` alone. It carries a mark, the file
`.penstock`, and so does every folder and every log in it that is cleared or removed one day: what a dead tree left, old
logs, the oldest of the caches. Nothing without a mark is removed or written over, whatever its name. Where a `penstock`
is there that has none (a checkout, or what an older version left), that is a link, or another user's, `penstock-2` is
made beside it, and the other stays as it is.

- A folder that a variable names and that cannot be used is an error which names the variable; of the cache it is only a
  notice. `PENSTOCK_RUNTIME_DIR` must be the user's own, of mode 0700, and short: a socket's path has 107 bytes.
- Without one, `$HOME` is tried, then the home in the user database, then the temporary folder (`$TMPDIR`, `/tmp`,
  `/var/tmp`, `/dev/shm`) as `penstock-` and the user's number; that last choice is said in one notice.
- Root keeps nothing in a folder of another user's: after `sudo -E` logs and caches go to root's own home, or where that
  cannot be written, to the temporary folder, and downloads of huggingface_hub to the cache, unless `HF_HOME` names
  another place.
- A log disk that is full costs the lines of the log, and standard error that is closed, broken or full costs what would
  have been said there; answers and exit statuses stay the same.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/configuration.md from the options' own fields.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is stale")
    if parser.parse_args().check:
        is_stale = PAGE.read_text(encoding="utf-8") != page()
        print(f"{PAGE} is " + ("stale: run scripts/write_configuration.py" if is_stale else "up to date"))
        return int(is_stale)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    engine_takes = {name: rule.sentence for name, rule in rules_of(config.EngineConfig).items()}
    sampling_takes = {name: rule.sentence for name, rule in rules_of(sampling.SamplingParams).items()}
    parts = [
        HEAD,
        "## Engine\n",
        *tables(config.EngineConfig, ENGINE_GROUPS, engine_takes),
        "## SamplingParams\n",
        *tables(sampling.SamplingParams, SAMPLING_GROUPS, sampling_takes),
        OTHERS.format(accepted=listed(foreign_options.ACCEPTED)),
        refused(),
        ENVIRONMENT,
    ]
    return "\n".join(parts)


def tables(struct: type, groups: Mapping[str, str], takes: Mapping[str, str]) -> Iterator[str]:
    """A heading and a table for each group of the struct's described fields."""
    rows: list[str] = []
    for field in msgspec.structs.fields(struct):
        if field.name in groups:
            if rows:
                yield table(rows)
            rows = []
            yield f"### {groups[field.name]}\n"
            if field.name in NOTES:
                yield NOTES[field.name]
        if (described := description(field.type)) is not None:
            rows.append(row(field, takes.get(field.name, ""), described))
    yield table(rows)


def table(rows: list[str]) -> str:
    return "\n".join(["| name | default | takes | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def row(field: msgspec.structs.FieldInfo, takes: str, meaning: str) -> str:
    default = "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`".replace("'", '"')
    return f"| `{field.name}` | {default} | {escaped(takes.removeprefix('must be '))} | {escaped(meaning)} |"


def description(annotation: Any) -> str | None:
    """Of a field that a person may set; None of one without a sentence."""
    metadata = getattr(annotation, "__metadata__", None) or next(
        (part.__metadata__ for part in get_args(annotation) if hasattr(part, "__metadata__")), None
    )
    return metadata[0].description if metadata else None


def refused() -> str:
    """A row a sentence, with the options that share it."""
    sharing: dict[str, list[str]] = {}
    for name, (_, sentence) in foreign_options.REFUSED.items():
        sharing.setdefault(sentence, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {escaped(sentence)} |" for sentence, names in sharing.items()]
    return "\n".join(["| options | why |", "| --- | --- |", *rows, ""])


def listed(names: Mapping[str, Any]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names) + ".", width=120, break_on_hyphens=False)


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
