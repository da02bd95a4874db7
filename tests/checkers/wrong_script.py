"""Mistakes that a type checker finds before the script runs: an `ignore` that nothing needs is an error as well.

It is read, not run.
"""

import penstock
from penstock import LLM, AsyncLLM, BeamSearchParams, GuidedDecodingParams, SamplingParams

LLM()  # type: ignore[call-arg]
LLM("x", dtyp="float16")  # type: ignore[call-arg]
LLM("x", dtype="flot16")  # type: ignore[arg-type]
LLM("x", max_model_len="long")  # type: ignore[arg-type]
LLM("x", kv_cache_memory=1.5)  # type: ignore[arg-type]
LLM("x", connect="auto", dtype="half", devices=0)
AsyncLLM("x", quant="int8")  # type: ignore[call-arg]
SamplingParams(temprature=3)  # type: ignore[call-arg]
SamplingParams(temperature="hot")  # type: ignore[arg-type]
SamplingParams(stop="x", stop_token_ids=5, early_stop={"window_size": 3}, temperature=None)
SamplingParams().temprature  # type: ignore[attr-defined]  # noqa: B018
SamplingParams().max_token = 3  # type: ignore[attr-defined]
BeamSearchParams(beam_with=3)  # type: ignore[call-arg]
GuidedDecodingParams(regx="x")  # type: ignore[call-arg]
llm = LLM("x")
llm.generat("x")  # type: ignore[attr-defined]
llm.generate("x")[0].text  # type: ignore[attr-defined]  # noqa: B018
llm.generate("x")[0].outputs.txt  # type: ignore[attr-defined]  # noqa: B018
llm.generate("x")[0].outputs.token_ids.append("x")  # type: ignore[arg-type]
print(penstock.Llm)  # type: ignore[attr-defined]
