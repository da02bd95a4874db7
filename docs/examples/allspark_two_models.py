"""Two models in one engine, each with weights, threads and keys and values of its own, answering at the same time."""

from penstock.allspark import AsCacheMode, Engine, HuggingFaceModel, TargetDevice

# A format for all layers, and other ones for some; None leaves a layer as it is.
QUANTIZATIONS = {
    "eight bits": {"quant_method": "instant_quant", "weight_format": "int8", "compute_method": "activate_quant"},
    "four bits": {"quant_method": "instant_quant", "weight_format": "uint4", "layers": {"*.down_proj": "int8"}},
}

engine = Engine()
loaders = {}
for name, quantization in QUANTIZATIONS.items():
    loader = HuggingFaceModel("pocket", name).load_model().init_quantization(customized_quant_config=quantization)
    builder = loader.create_reference_runtime_config_builder(name, TargetDevice.CPU, [0], max_batch=4)
    builder.compute_unit(TargetDevice.CPU, [0], 1).max_length(512).kv_cache_mode(AsCacheMode.AsCacheQuantI8)
    engine.install_model(builder.build())
    engine.start_model(name)
    loaders[name] = loader.init_tokenizer()

queues = {}
for name, loader in loaders.items():
    prompt = loader.get_tokenizer().apply_chat_template([{"role": "user", "content": "What is 2 + 3?"}])
    generation = loader.create_reference_generation_config_builder().do_sample(False)
    _, handle, queues[name] = engine.start_request_text(name, loader, prompt, generation)

for name, queue in queues.items():
    engine.sync_request(name, None)
    print(f"{name}: {loaders[name].get_tokenizer().decode(queue.Get().ids_from_generate)}")
engine.close()
