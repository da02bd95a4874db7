"""LoRA adapters: each request of a batch names its own, or none.

An adapter is a folder that PEFT saved. This one is made up here, of random matrices, so that there is one to load.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
from safetensors.numpy import save_file

from penstock import LLM, SamplingParams

RANK, LAYERS, HIDDEN = 8, 5, 256  # pocket's


def write_adapter(folder: Path, seed: int) -> None:
    chance = numpy.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for matrix, shape in (("A", (RANK, HIDDEN)), ("B", (HIDDEN, RANK))):
            tensors[f"{name}.lora_{matrix}.weight"] = chance.normal(0, 1, shape).astype(numpy.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


llm = LLM("pocket", enable_lora=True, max_loras=2, max_lora_rank=RANK)
with TemporaryDirectory() as folder:
    write_adapter(Path(folder), seed=1)
    llm.load_lora("mine", folder)

messages = [{"role": "user", "content": "What is the capital of Italy?"}]
greedy = SamplingParams(temperature=0, max_tokens=8)
params = [greedy, SamplingParams(temperature=0, max_tokens=8, lora_name="mine")]
for each, output in zip(params, llm.chat([messages, messages], params)):
    print(each.lora_name, repr(output.outputs.text))

print(llm.list_loras())
llm.unload_lora("mine")
