"""The same beginning is computed once; a salt keeps what one user sent from speeding up another's."""

from penstock import LLM, SamplingParams

llm = LLM("pocket")
document = "Ada is 36 years old and lives in Paris. " * 20
answer = SamplingParams(temperature=0, max_tokens=8)

for prompt in (
    {"prompt": document + "Who is 36?"},
    {"prompt": document + "Who lives in Paris?"},
    {"prompt": document + "Who lives in Paris?", "cache_salt": "another user"},
    {"prompt": document + "How old is Ada?", "cache_salt": "another user"},
):
    [output] = llm.generate(prompt, answer, use_tqdm=False)
    salt = prompt.get("cache_salt", "no salt")
    print(f"{output.num_cached_tokens:4} of {len(output.prompt_token_ids)} tokens were there already ({salt})")
