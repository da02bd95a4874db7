"""A script that uses all that the package exports; type checkers find nothing wrong with it. It is read, not run."""

import asyncio
import json
from pathlib import Path
from typing import Any

from penstock import (
    LLM,
    AdapterError,
    AsyncLLM,
    BeamSearchParams,
    ClosedError,
    CompletionOutput,
    ConfigError,
    EngineDeadError,
    Ernie4_5Tokenizer,
    ErnieBotTokenizer,
    GuidedDecodingParams,
    Logprob,
    ModelNotFoundError,
    OutOfMemoryError,
    PenstockError,
    PoolingParams,
    PoolingRequestOutput,
    RequestError,
    RequestMetrics,
    RequestOutput,
    SamplingParams,
    Tokenizer,
    __version__,
)


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.outputs.text for output in outputs]


def batch(folder: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=32, stop="\n", logprobs=2, seed=7)
    with LLM(folder, dtype="bfloat16", quantization="int8", kv_cache_memory="1GiB", max_num_seqs=8) as llm:
        names: list[str] = texts(llm.generate(["a", "b"], params))
        for output in llm.generate([[1, 2, 3], {"prompt": "x", "priority": 3}], [params, params], use_tqdm=False):
            if output.error_code != 200:
                print(output.error_msg)
            first: CompletionOutput = output.outputs[0]
            print(first.text, first.token_ids, first.finish_reason, first.logprobs, names)
            metrics: RequestMetrics | None = output.metrics
            if metrics is not None and metrics.first_token_time is not None:
                print(metrics.first_token_time + 1)
            for entry in first.logprobs or []:
                for token, logprob in entry.items():
                    value: Logprob = logprob
                    print(token, value.logprob, value.rank, value.decoded_token)
            print(json.dumps(output.to_dict()), output.to_json())
        print(llm.stats().running, llm.list_loras())
        tokenizer: Tokenizer = llm.get_tokenizer()
        print(tokenizer.decode(tokenizer.encode("hello")), len(tokenizer), tokenizer.eos_token_id)


def talk(llm: LLM) -> str:
    messages = [{"role": "user", "content": "What is 20 + 22?"}]
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    [answer] = llm.chat(messages, SamplingParams(max_tokens=8), tools=tools, chat_template_kwargs={"a": True})
    for call in answer.outputs.tool_calls or []:
        print(call.function.name, call.id)
    for piece in llm.stream(messages):
        print(piece.outputs.text, end="", flush=True)
    for output in llm.generate_iter((f"{n}" for n in range(9)), ordered=False):
        print(output.request_id)
    best = llm.beam_search("x", BeamSearchParams(beam_width=2, max_tokens=3))
    print([sample.score for sample in best[0].outputs])
    return llm.apply_chat_template(messages)


def guided(llm: LLM) -> None:
    shape = GuidedDecodingParams(choice=["yes", "no"])
    llm.generate("x", SamplingParams(guided_decoding=shape))
    llm.generate("x", SamplingParams(guided_json={"type": "object"}, stop=["a"], logit_bias={5: -1.0}))
    llm.load_lora("name", Path("adapter"))
    llm.unload_lora("name")


def numbers(folder: Path) -> None:
    with LLM(folder, runner="pooling") as llm:
        params = PoolingParams(dimensions=256, normalize=True)
        for output in llm.embed(["a", [1, 2]], params, use_tqdm=False):
            vector: list[float] = [] if output.outputs is None else output.outputs.embedding
            print(vector, output.prompt_token_ids)
        rows: PoolingRequestOutput[Any] = llm.encode(["a"], PoolingParams(by_token=True))[0]
        print(rows.outputs.data if rows.outputs is not None else rows.error_msg)
        print([each.outputs and each.outputs.score for each in llm.score("a", ["b", "c"])])
        print([each.outputs and each.outputs.probs for each in llm.classify(["a"])])


async def later() -> None:
    async with AsyncLLM("pocket", connect="auto", quiet=True) as llm:
        outputs = await llm.generate("x", SamplingParams(max_tokens=4))
        print(outputs[0].outputs.text)
        async for piece in llm.stream("y"):
            print(piece.outputs.text)
        print(await llm.stats(), await llm.chat([{"role": "user", "content": "hi"}]))


def main() -> None:
    print(__version__)
    try:
        batch(Path("model"))
        llm = LLM("pocket", connect="auto", early_stop_config={"window_size": 10}, devices=[0])
        print(talk(llm), llm)
        guided(llm)
        numbers(Path("vectors"))
        llm.close()
        asyncio.run(later())
    except (ModelNotFoundError, ConfigError, OutOfMemoryError) as error:
        print(error)
    except EngineDeadError as error:
        print(error.results)
    except (AdapterError, ClosedError, RequestError) as error:
        print(error)
    except PenstockError:
        raise
    print(Tokenizer.from_pretrained("pocket").apply_chat_template([{"role": "user", "content": "x"}]))
    theirs: list[type[Tokenizer]] = [Ernie4_5Tokenizer, ErnieBotTokenizer]
    print(theirs)


if __name__ == "__main__":
    main()
