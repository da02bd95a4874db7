"""What `SamplingParams` say, in a few lines of numpy: which token comes next, given logits, history and a number.

Float64 and one token at a time, so that it can be read; the sampler and the tree are held against it.
"""

import numpy

from penstock.protocol.parameters.sampling import SamplingParams


def next_token(
    logits: numpy.ndarray, tokens: list[int], num_prompt: int, params: SamplingParams, uniform: float
) -> int:
    adjusted = adjusted_logits(logits, tokens, num_prompt, params)
    if params.temperature == 0:
        return int(adjusted.argmax())
    kept = kept_probabilities(adjusted, params)
    sums = numpy.cumsum(list(kept.values()))
    return list(kept)[int((sums <= uniform * sums[-1]).sum())]


def adjusted_logits(logits: numpy.ndarray, tokens: list[int], num_prompt: int, params: SamplingParams) -> numpy.ndarray:
    logits, answer = logits.astype(float), tokens[num_prompt:]
    for token, bias in (params.logit_bias or {}).items():
        logits[token] += bias
    for *rest, last in params.bad_words_ids or []:
        if tokens[len(tokens) - len(rest) :] == rest:
            logits[last] = -numpy.inf
    if (size := params.no_repeat_ngram_size) and len(tokens) >= size:
        for start in range(len(tokens) - size + 1):
            if tokens[start : start + size - 1] == tokens[len(tokens) - size + 1 :]:
                logits[tokens[start + size - 1]] = -numpy.inf
    if len(answer) < params.min_tokens or len(tokens) < params.min_length:
        logits[[*(params.eos_token_id or []), *(params.stop_token_ids or [])]] = -numpy.inf
    for token in set(answer if params.suppress_repetition_in_generation else tokens):
        penalty = params.repetition_penalty
        logits[token] *= 1 / penalty if logits[token] > 0 else penalty
    for token in set(answer):
        logits[token] -= params.frequency_penalty * answer.count(token) + params.presence_penalty
    return logits


def kept_probabilities(logits: numpy.ndarray, params: SamplingParams) -> dict[int, float]:
    """What truncation leaves: by the token's id in the order in which a draw goes through it."""
    weights = numpy.exp((logits - logits.max()) / params.temperature)
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if 0 < params.top_k < len(order):
        order = order[: params.top_k]
    total, share, kept = weights[order].sum(), 0.0, []
    for token in order:
        if params.top_p < 1 and share >= params.top_p:
            break
        share += weights[token] / total
        kept.append(token)
    kept = [token for token in kept if weights[token] >= params.min_p * weights[order[0]]]
    # Nothing but min_p to do: the draw goes through the vocabulary as it is.
    if not 0 < params.top_k < len(logits) and params.top_p == 1:
        kept.sort()
    return {token: float(weights[token] / weights[kept].sum()) for token in kept}


# One for each parameter that chooses tokens, and some that act together.
CASES: dict[str, dict] = {
    "greedy": {"temperature": 0},
    "plain": {},
    "temperature": {"temperature": 0.6},
    "a high temperature": {"temperature": 3.0},
    "top_k": {"top_k": 7},
    "top_k of one": {"top_k": 1},
    "top_p": {"top_p": 0.6},
    "a small top_p": {"top_p": 0.05, "top_k": 100_000},
    "min_p": {"min_p": 0.2},
    "top_k, top_p and min_p": {"top_k": 30, "top_p": 0.8, "min_p": 0.1, "temperature": 1.4},
    "presence_penalty": {"temperature": 0, "presence_penalty": 1.5},
    "frequency_penalty": {"temperature": 0, "frequency_penalty": 0.9},
    "a reward for frequency": {"temperature": 0.8, "frequency_penalty": -1.0},
    "repetition_penalty": {"temperature": 0, "repetition_penalty": 1.4},
    "a reward for repetition": {"temperature": 1.0, "repetition_penalty": 0.7},
    "suppress_repetition_in_generation": {
        "temperature": 0,
        "repetition_penalty": 1.4,
        "suppress_repetition_in_generation": True,
    },
    "bad words": {"temperature": 0, "bad_words_ids": [[95], [159, 251], [31, 31, 31]]},
    "logit_bias": {"temperature": 0, "logit_bias": {31: -4.0, 100: 2.5, 7: 1.5}},
    "min_tokens": {"temperature": 0, "min_tokens": 14, "eos_token_id": list(range(4, 300, 4))},
    "min_length": {"temperature": 0, "min_length": 18, "eos_token_id": list(range(4, 300, 4))},
    "no_repeat_ngram_size of 1": {"temperature": 0, "no_repeat_ngram_size": 1},
    "no_repeat_ngram_size of 2": {"temperature": 0, "no_repeat_ngram_size": 2},
    "no_repeat_ngram_size of 3": {"temperature": 0.7, "no_repeat_ngram_size": 3, "top_p": 0.9},
    "all at once": dict(
        temperature=0.9, top_p=0.9, top_k=60, repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.2,
        no_repeat_ngram_size=2, logit_bias={31: 1.0}, bad_words_ids=[[95]], min_tokens=4, eos_token_id=[2, 4],
    ),
}  # fmt: skip
