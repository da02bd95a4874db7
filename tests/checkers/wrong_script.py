"""Mistakes that a type checker finds before the script runs, one in each line with a mark. It is read, not run."""

import penstock
from penstock import LLM, AsyncLLM, BeamSearchParams, GuidedDecodingParams, SamplingParams

LLM()  # wrong
LLM("x", dtyp="float16")  # wrong
LLM("x", dtype="flot16")  # wrong
LLM("x", max_model_len="long")  # wrong
LLM("x", kv_cache_memory=1.5)  # wrong
LLM("x", connect="auto", dtype="half", devices=0)
AsyncLLM("x", quant="int8")  # wrong
SamplingParams(temprature=3)  # wrong
SamplingParams(temperature="hot")  # wrong
SamplingParams(3)  # wrong
SamplingParams(stop="x", stop_token_ids=5, early_stop={"window_size": 3}, temperature=None)
SamplingParams().temprature  # noqa: B018  wrong
SamplingParams().max_token = 3  # wrong
BeamSearchParams(beam_with=3)  # wrong
GuidedDecodingParams(regx="x")  # wrong
llm = LLM("x")
llm.generat("x")  # wrong
llm.generate("x")[0].text  # noqa: B018  wrong
llm.generate("x")[0].outputs.txt  # noqa: B018  wrong
llm.generate("x")[0].outputs.token_ids.append("x")  # wrong
print(penstock.Llm)  # wrong
