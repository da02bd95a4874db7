"""Models whose layers see windows or keep states, planned by a real scheduler: tokens are computed once, and windows
hold no more than they need. test_company.py has their answers.
"""

from builders.cases import for_each
from builders.runner_harness import TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.worker.start.load import load_model
from penstock.worker.start.memory.shares import GroupSize, Shares


@for_each("family", ["gpt_oss", "gemma4_text", "qwen3_5_text"])
def test_a_conversation_of_ten_turns_computes_each_token_once(family, tmp_path):
    """Where layers see windows in turn, read the keys of others, or keep states."""
    model = load_model(tiny_model(tmp_path, family))
    shape = dict(num_blocks=200, max_model_len=512)
    sharing, windows, plain = (
        TinyEngine(slotted_runner(model, gives_back=gives_back, **shape), shares_prefixes=shares_prefixes)
        for gives_back, shares_prefixes in ((True, True), (True, False), (False, False))
    )
    history: list[int] = []
    for turn in range(10):
        history += [(turn * 13 + place) % 250 + 1 for place in range(11)]
        before = sharing.scheduler.stats()
        asked = dict(max_tokens=9, logprobs=1)
        [found], [alone], [wanted] = (each.run(prompt(turn, history, **asked)) for each in (sharing, windows, plain))
        assert found == alone == wanted, turn
        after = sharing.scheduler.stats()
        computed = (after.prompt_tokens - before.prompt_tokens) - (after.cached_tokens - before.cached_tokens)
        # What is new, and of the answer before what fills no block.
        assert computed <= 11 + 9 + 16, turn
        history += found.tokens


def test_a_long_context_holds_what_windows_need_and_no_more_than_a_twentieth_beyond(tmp_path):
    """In the proportions of Gemma 3: of 6 layers 5 see a 64th of the context, and all have one key head."""
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    options = dict(num_hidden_layers=6, num_key_value_heads=1, layer_types=kinds, sliding_window=64)
    folder = tiny_model(tmp_path, "qwen3", **options, use_sliding_window=True, max_position_embeddings=4096)
    runner = slotted_runner(load_model(folder), num_blocks=300, max_model_len=4096, gives_back=True)
    engine = TinyEngine(runner, shares_prefixes=False, max_num_batched_tokens=64)
    compute, held = runner.step, []

    def step(plan, await_mask):
        held.append([group.pool.num_blocks - group.pool.num_free for group in engine.scheduler.cache.groups])
        return compute(plan, await_mask)

    runner.step = step
    [answer] = engine.run(prompt(0, [place % 250 + 1 for place in range(4060)], max_tokens=36))
    assert len(answer.tokens) == 36
    layers, needed = [1, 5], 16 * (1 * 256 + 5 * 4)
    [*_, at_last] = (16 * sum(n * count for n, count in zip(layers, counts)) for counts in held)
    assert needed <= at_last <= 1.05 * needed
    assert max(of_window for _, of_window in held) <= 64 // 16 + 64 // 16 + 1, "while the prompt is computed"


def test_memory_for_32k_tokens_of_gemma_3_1b_is_what_its_windows_need():
    """26 layers with a key head of 256 in bfloat16."""
    a_token = 2 * 256 * 2
    groups = [GroupSize("full", 4, 4 * 32 * a_token), GroupSize("window", 22, 22 * 32 * a_token, 512)]
    needed = a_token * (4 * 32_768 + 22 * 512)
    assert Shares(groups, block_size=32, num_seqs=1, chunk=1).needed_bytes(32_768) < 1.01 * needed
    assert Shares(groups, block_size=32, num_seqs=1, chunk=256).needed_bytes(32_768) < 1.05 * needed
    assert 26 * 32_768 * a_token > 5.9 * needed, "what it would be if windows kept all tokens"
