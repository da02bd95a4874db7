"""`LLM.verify`: how fast answers are checked, beside making them and beside prompts that want all their logits.

    scripts/benchmark verify --shape 0.6b --quantization int8

A model of random weights answers with receipts, sampled; in turns one request alone and 16 together make as many tokens
a request, prompts as long as prompt and answer are computed with the log-probabilities of all their tokens, and the
answers are verified. The ratios at the end are to one row, and to what these prompts reach.
"""

from typing import Any

from penstock import LLM, RequestOutput, SamplingParams

from ..harness import Quantization, ShapeName, compare, median, prompts, random_model, random_weights, seconds_of


def run(
    answers: int = 40, tokens: int = 256, prompt: int = 16, rounds: int = 3, temperature: float = 1.0,
    quantization: Quantization = "int8", shape: ShapeName = "0.6b",
) -> Any:  # fmt: skip
    with random_model(shape) as model, LLM(model, **random_weights(quantization)) as llm:
        params = SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True, receipt=True)
        asked = prompts(answers, prompt)
        made = llm.generate(asked, params, use_tqdm=False)
        scored = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        wholes = [output.prompt_token_ids + output.outputs.token_ids for output in made]

        def rate(count: int, num_tokens: int, work: Any) -> float:
            return count * num_tokens / seconds_of(work)

        ways = {
            "one row": lambda: rate(1, tokens, lambda: llm.generate(asked[:1], params, use_tqdm=False)),
            "16 rows": lambda: rate(16, tokens, lambda: llm.generate((asked * 16)[:16], params, use_tqdm=False)),
            "prompts with all logits": lambda: rate(
                answers, prompt + tokens, lambda: llm.generate(wholes, scored, use_tqdm=False)
            ),
            "verify": lambda: rate(answers, tokens, lambda: verified(llm, made)),
        }
        found = compare(f"{answers} answers of {tokens} tokens to prompts of {prompt}", ways, rounds, "tokens/s")
        medians = {name: median(figures) for name, figures in found.items()}
        to_one = medians["verify"] / medians["one row"]
        to_prompts = medians["verify"] / medians["prompts with all logits"]
        print(f"verify is {to_one:.2f} x one row, and {to_prompts:.2f} x prompts with all logits")
        return {"tokens a second": found, "to one row": to_one, "to prompts with all logits": to_prompts}


def verified(llm: LLM, made: list[RequestOutput]) -> None:
    if wrong := [verdict.sentence for verdict in llm.verify(made) if verdict.status != "proved"]:
        raise RuntimeError(wrong[0])
