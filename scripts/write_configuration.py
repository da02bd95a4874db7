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
from penstock.protocol.options import config, foreign_names
from penstock.protocol.parameters import sampling

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

# A group begins with this field and ends before the next one's.
ENGINE_GROUPS = {
    "model": "The model and its numbers",
    "max_model_len": "Lengths, ranks and steps",
    "gpu_memory_utilization": "Memory for keys and values",
    "kv_cache_ratio": "Scheduling",
    "use_warmup": "Computation",
    "seed": "Requests and names",
    "enable_lora": "LoRA adapters",
    "enable_mm": "Pictures and videos",
    "connect": "The daemon",
    "enforce_eager": "Details",
    "limit_prompt_chars": "Limits for requests",
    "trace": "Debugging",
}
# The text before the table of the group that begins with this field.
NOTES = {
    "gpu_memory_utilization": """\
Without `kv_cache_memory`, `gpu_memory_utilization` sets how much of a GPU's memory is filled. On a CPU, the KV cache is
then as large as `max_num_seqs` requests of `max_model_len` tokens need, but at most 2 GiB, at most a quarter of the
memory that is free at the start (limits of control groups included), and at most the larger of 256 MiB and four times
the weights. If you set `max_model_len`, one request of that length always fits. The memory is touched in the
background once the model is ready.

With `swap_space`, evicted blocks are kept in CPU memory and loaded again when their prefix is needed or their request
continues; loaded blocks count as cached. Each rank allocates that memory at the start, in addition to everything else.
It is meant for GPUs, and also works on a CPU with a small KV cache.

If a model's layers keep different things (all tokens, a window of the last tokens, or a state of fixed size:
[layer-groups.md](layer-groups.md)), each kind has its own blocks, and the table at the start (`-v`) shows them.
`kv_cache_memory` is then the total, and `num_gpu_blocks_override` the number of blocks for the kind with the longest
contexts; the others get a matching number. `swap_space` is divided in the same way. A window needs memory for its own
tokens and those of a step (`max_num_batched_tokens`), independent of `max_model_len`; if memory for one request is
short, smaller steps help, too.

With `prefix_cache_ttl`, a block that no request has used for that many seconds isn't found any more, even if there is
room, and neither is its copy in CPU memory. Every use renews it, and a running request counts as use. Answers are the
same either way.

With `prefix_cache_size` (`--prefix-cache 20GiB`) or `prefix_cache_dir`, prefixes are kept on disk, too, and are found
after a restart; answers are the same. [prefixes.md](prefixes.md) explains it. `kv_events_config` publishes what is
found where, for [routers](routers.md#kv-events).
""",
    "use_warmup": """\
[speculation.md](speculation.md) explains `speculative_config`. It never changes an answer.
""",
    "enable_mm": """\
[pictures.md](pictures.md) explains how to ask about pictures. Nothing needs to be set: a model that can see takes
pictures, others refuse them. `enable_mm=False` leaves the encoder out, which saves its memory. Encoded pictures stay in
memory (`mm_cache`) until others need the room, so a picture in many requests is encoded once. While answers are
streamed, a step spends about as long on encoding as it may spend on prompts; `mm_encoder_budget` sets a fixed amount.
""",
}
SAMPLING_GROUPS = {
    "temperature": "Sampling",
    "max_tokens": "Length and end",
    "bad_words": "Forced and forbidden tokens",
    "seed": "Samples and log-probabilities",
    "skip_special_tokens": "Text",
    "priority": "Scheduling and adapters",
    "reasoning_max_tokens": "Thoughts and structured output",
}

HEAD = """\
# Configuration

Engine options are arguments of `LLM`, and options of the command line with the same name and meaning:

```python
from penstock import LLM, SamplingParams

llm = LLM("pocket", max_model_len=2048, kv_cache_memory="256MiB", quiet=True)
params = SamplingParams(temperature=0, max_tokens=16, stop=["\\n\\n"])
print(llm.chat([{"role": "user", "content": "What is 2 + 3?"}], params)[0].outputs.text)
```

```sh
penstock generate pocket "What is 2 + 3?" --max-model-len 2048 --kv-cache-memory 256MiB --temperature 0 --max-tokens 16
```

With None, Penstock chooses. An invalid value raises `ConfigError` (an option) or `RequestError` (a sampling parameter)
at once; an unknown name raises `TypeError` with the nearest known one. On the command line a switch is
`--enable-prefix-caching` or `--no-enable-prefix-caching`.

`scripts/write_configuration.py` writes this page from the fields themselves.
"""

OTHERS = """\
## Options of other engines

They are for Python and the daemon's file, not for the command line. These are accepted without an effect, so that
scripts for other engines run:
{accepted}

These have their meaning in FastDeploy, or in vLLM:

| option | here |
| --- | --- |
| `tool_parser` | `tool_call_parser` |
| `use_cudagraph=False` | `enforce_eager=True` |
| `graph_optimization_config={{"use_cudagraph": …}}` | `enforce_eager` |
| `graph_optimization_config={{"cudagraph_capture_sizes": […]}}` | `graph_batch_sizes`; other keys have no effect |
| `load_choices="default"`, `"default_v1"`, `"dummy"` | `load_format="auto"`, `"dummy"` |
| `enable_early_stop=True` | `early_stop_config={{}}`; refused with a contradicting `early_stop_config` |
| `quantization={{"dense_quant_type": …, "moe_quant_type": …}}` | `quantization={{"*": …, "*.experts.*": …}}` |
| `task` | `runner` |
| `cudagraph_capture_sizes`, `cuda_graph_sizes` | `graph_batch_sizes` |
| `kv_cache_memory_bytes` | `kv_cache_memory` |
| `speculative_model`, `num_speculative_tokens`, `ngram_prompt_lookup_min`, `…_max` | `speculative_config={{…}}` |
| `mm_processor_kwargs={{"image_min_pixels": …, "video_fps": …}}` | for pictures or videos only |

These are refused, unless their value asks for nothing:
"""

ENVIRONMENT = """\
## Environment

| variable | default | meaning |
| --- | --- | --- |
| `PENSTOCK_CACHE` | `~/.cache` | converted tokenizers, packed weights |
| `PENSTOCK_CPU_VARIANT` | the best one | the [native kernels](cpu-kernels.md) to use: `avx2`, …, or `none` |
| `PENSTOCK_GRAPHS` and others | | a GPU's [fast paths](gpu.md#find-a-fault), each off (0) or on (1) |
| `PENSTOCK_HOST_IP` | found by the way to `master_addr` | this machine's address for the ranks of [others](nodes.md) |
| `PENSTOCK_NODE_KEY` | | the key that [machines](nodes.md) share, if it is in no `node_key_file` |
| `PENSTOCK_LOG_DIR` | `$XDG_STATE_HOME`, else `~/.local/state` | a log file per process tree; the newest 40 are kept |
| `PENSTOCK_LOG` | | `warning` hides tables, bars and notices, as `quiet=True`; `verbose` is like `-v` |
| `PENSTOCK_RUNTIME_DIR` | `$XDG_RUNTIME_DIR`, else the temporary folder | the private sockets of a tree |
| `BFC_MEM_RATIO` | | the default of `gpu_memory_utilization` |
| `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` | | where [downloads](offline.md) are kept, whether to make any, and as whom |

In these folders Penstock writes only to `penstock/`. That folder contains a marker file, `.penstock`, and so does every
folder and log in it that Penstock may clear or remove later: leftovers of dead trees, old logs, the oldest caches.
Nothing without a marker is ever removed or overwritten. If `penstock` exists without a marker (a checkout, or from an
older version), is a link, or belongs to another user, Penstock uses `penstock-2` and leaves the other alone.

- If a variable names an unusable folder, that is an error that names the variable; for the cache it is only a notice.
  `PENSTOCK_RUNTIME_DIR` must belong to the user, have mode 0700, and be short: a socket's path has 107 bytes.
- Without a variable, Penstock tries `$HOME`, then the home in the user database, then the temporary folder (`$TMPDIR`,
  `/tmp`, `/var/tmp`, `/dev/shm`) as `penstock-` and the user's number; a notice reports that last choice.
- Root writes nothing into another user's folders: after `sudo -E` logs and caches go to root's own home, or if that
  isn't writable, to the temporary folder; downloads of huggingface_hub go to the cache, unless `HF_HOME` is set.
- A full log disk loses log lines, and a closed, broken or full standard error loses messages; answers and exit statuses
  stay the same.
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
        OTHERS.format(accepted=listed(foreign_names.ACCEPTED)),
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
    """The row of a field that a person may set; None for a field without a description."""
    metadata = getattr(annotation, "__metadata__", None) or next(
        (part.__metadata__ for part in get_args(annotation) if hasattr(part, "__metadata__")), None
    )
    return metadata[0].description if metadata else None


def refused() -> str:
    """A row a sentence, with the options that share it."""
    sharing: dict[str, list[str]] = {}
    for name, (_, sentence) in foreign_names.REFUSED.items():
        sharing.setdefault(sentence, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {escaped(sentence)} |" for sentence, names in sharing.items()]
    return "\n".join(["| options | why |", "| --- | --- |", *rows, ""])


def listed(names: Mapping[str, Any]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names) + ".", width=120, break_on_hyphens=False)


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
