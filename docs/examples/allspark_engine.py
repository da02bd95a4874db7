"""DashInfer's way to drive a model: an engine, a loader, a request, and a queue that is read as the answer comes."""

from penstock.allspark import AsStatus, Engine, GenerateRequestStatus, HuggingFaceModel, TargetDevice

engine = Engine()
loader = HuggingFaceModel("pocket", "pocket").load_model().init_tokenizer()
loader.serialize_to_memory(engine).free_model()

builder = loader.create_reference_runtime_config_builder("pocket", TargetDevice.CPU, [0], max_batch=8)
config = builder.max_length(512).build()
for status in (engine.install_model(config), engine.start_model("pocket")):
    assert status == AsStatus.ALLSPARK_SUCCESS, status.message

tokenizer = loader.get_tokenizer()
question = [{"role": "user", "content": "What is the capital of Italy?"}]
generation = loader.create_reference_generation_config_builder(config).do_sample(False)
status, handle, queue = engine.start_request_text("pocket", loader, tokenizer.apply_chat_template(question), generation)

tokens = []
while (elements := queue.Get()) is not None:
    tokens += elements.ids_from_generate
print(tokenizer.decode(tokens), queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished)
print(f"{queue.RequestStatInfo()['context_token_length']} tokens in, {queue.GeneratedLength()} out")

engine.release_request("pocket", handle)
print(engine.release_request("pocket", handle).message)  # a second time: a status and a sentence, no exception
engine.stop_model("pocket")
engine.release_model("pocket")
