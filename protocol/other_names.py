"""What other engines call what has a name here: Ollama, llama.cpp, LM Studio, transformers, SGLang, OpenAI, ShareGPT.

Looked up before a word is compared letter by letter, which would find nothing, or something else. A row counts only
where one of its names is among those that may be given. Knows nothing of what the names are for.
"""

# Their name → ours, of which the first that may be given is meant.
NAMES: dict[str, tuple[str, ...]] = {
    # how long an answer is
    "num_predict": ("max_tokens", "max_output_tokens"),
    "n_predict": ("max_tokens", "max_output_tokens"),
    "max_new_tokens": ("max_tokens", "max_output_tokens"),
    "maxpredictedtokens": ("max_tokens", "max_output_tokens"),
    "max_output_tokens": ("max_tokens",),
    "max_completion_tokens": ("max_tokens", "max_output_tokens"),
    "max_tokens": ("max_output_tokens",),
    "min_new_tokens": ("min_tokens",),
    "thinking_token_budget": ("reasoning_max_tokens",),
    # how tokens are chosen
    "do_sample": ("temperature",),
    "repeat_penalty": ("repetition_penalty",),
    "repeatpenalty": ("repetition_penalty",),
    "toppsampling": ("top_p",),
    "topksampling": ("top_k",),
    "minpsampling": ("min_p",),
    "sampling_seed": ("seed",),
    "num_return_sequences": ("n",),
    "num_beams": ("beam_width",),
    "stop_sequences": ("stop",),
    "stop_strings": ("stop",),
    "stopstrings": ("stop",),
    "n_probs": ("logprobs",),
    "top_logprobs": ("logprobs",),
    "bad_words_token_ids": ("bad_words_ids",),
    # the shape of an answer
    "format": ("response_format",),
    "structured": ("response_format",),
    "structured_outputs": ("guided_decoding",),
    "json_schema": ("guided_json", "response_format"),
    "regex": ("guided_regex",),
    "ebnf": ("guided_grammar",),
    # the model
    "num_ctx": ("max_model_len",),
    "n_ctx": ("max_model_len",),
    "ctx_size": ("max_model_len",),
    "context_length": ("max_model_len",),
    "contextlength": ("max_model_len",),
    "num_thread": ("num_threads",),
    "n_threads": ("num_threads",),
    "threads": ("num_threads",),
    "num_batch": ("max_num_batched_tokens",),
    "n_batch": ("max_num_batched_tokens",),
    "batch_size": ("max_num_seqs",),
    "parallel": ("max_num_seqs",),
    "n_parallel": ("max_num_seqs",),
    "max_running_requests": ("max_num_seqs",),
    "mem_fraction_static": ("gpu_memory_utilization",),
    "tp_size": ("tensor_parallel_size",),
    "model_path": ("model",),
    "load_choices": ("load_format",),
    "lora_path": ("lora_name",),
    # roles
    "human": ("user",),
    "ai": ("assistant",),
    "bot": ("assistant",),
    "gpt": ("assistant",),
    "model": ("assistant",),
}

# What has another place altogether: a sentence.
ADVICE: dict[str, str] = {
    "options": "What stands in Ollama's `options` is given beside the other fields, under OpenAI's names.",
    "num_ctx": "The context's length is set where the model is loaded: max_model_len.",
    "n_ctx": "The context's length is set where the model is loaded: max_model_len.",
    "keep_alive": "How long a model stays is set where it is served: `penstock serve MODEL --keep-alive SECONDS`.",
    "repeat_last_n": "repetition_penalty counts the whole text.",
    "think": 'A template is told so by chat_template_kwargs: {"enable_thinking": true}.',
    "enable_thinking": 'A template is told so by chat_template_kwargs: {"enable_thinking": true}.',
    "system": "What a model is told first is a message of the role system.",
    "functions": "Functions are given as `tools`.",
    "function_call": "Which function is called is given as `tool_choice`.",
    "num_gpu": "A model is on the card as a whole or not at all: device.",
    "n_gpu_layers": "A model is on the card as a whole or not at all: device.",
}
