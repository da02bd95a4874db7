"""Models whose layers see windows or keep states, planned by a real scheduler: each answer is that of a memory that
keeps all tokens and finds no prefix, bit for bit, however it was computed; and windows hold no more than they need.
"""

import pytest
from builders.runner_harness import Answer, TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.worker.models.load import Model, load_model
from penstock.worker.start.shares import GroupSize, Shares

FAMILIES = {
    "alternating": ("gpt_oss", {"num_hidden_layers": 4, "sliding_window": 20}),
    "later layers": (
        "qwen2", {"num_hidden_layers": 3, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 40}
    ),
    "every layer": ("mistral", {"sliding_window": 24}),
    "layers that read others' keys": ("gemma4_text", {}),
    "delta nets": ("qwen3_5_text", {}),
    "convolutions": ("lfm2", {}),
}  # fmt: skip
COMMON = [(5 * place) % 250 + 1 for place in range(90)]  # what prompts begin with


_RARER = ("later layers", "convolutions")


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=pytest.mark.long) if each in _RARER else each for each in FAMILIES]
)
def model(request, tmp_path_factory) -> Model:
    family, options = FAMILIES[request.param]
    return load_model(tiny_model(tmp_path_factory.mktemp("model"), family, **options))


def requests(first_id: int = 0) -> list:
    lengths = (1, 30, 90, 130, 5, 64, 111)
    return [
        prompt(first_id + number, [*COMMON[:length], number + 1], seed=number, max_tokens=18, logprobs=2, **params)
        for number, (length, params) in enumerate(zip(lengths, [{}, {"n": 3, "temperature": 1.0}, {}] * 3))
    ]


@pytest.fixture(scope="module")
def expected(model) -> list[Answer]:
    """Of one group, and no prefix is found."""
    return TinyEngine(slotted_runner(model, gives_back=False), shares_prefixes=False).run(*requests())


def windowed(model: Model, **options) -> TinyEngine:
    shape = {name: options.pop(name) for name in ("num_blocks", "num_cells", "num_slots") if name in options}
    return TinyEngine(slotted_runner(model, gives_back=True, **shape), **options)


@pytest.mark.parametrize("budget", [37, *(pytest.param(tokens, marks=pytest.mark.long) for tokens in (1, 16, 64))])
def test_in_chunks(model, expected, budget):
    assert windowed(model, max_num_batched_tokens=budget, shares_prefixes=False).run(*requests()) == expected


def test_with_prefixes_found(model, expected):
    engine = windowed(model)
    assert engine.run(*requests()) == expected
    assert engine.run(*requests(100)) == expected
    assert engine.scheduler.stats().cached_tokens > 300


def test_preempted(model, expected):
    engine = windowed(model, num_blocks=13, max_num_batched_tokens=40)
    assert engine.run(*requests()) == expected
    assert engine.scheduler.stats().preemptions > 0, "the pool was meant to be too small"


def test_evicted_to_cpu_memory_and_back(model, expected):
    engine = windowed(model, num_blocks=13, num_cells=200, max_num_batched_tokens=40)
    assert engine.run(*requests()) == expected
    assert engine.run(*requests(100)) == expected
    assert engine.scheduler.stats().loaded_blocks > 0


@pytest.mark.parametrize("threads", [3, pytest.param(2, marks=pytest.mark.long)])
def test_with_any_number_of_threads(model, expected, threads):
    model.backend.use_threads(threads)
    try:
        assert windowed(model).run(*requests()) == expected
    finally:
        model.backend.use_threads(1)


def test_a_conversation_of_ten_turns_computes_each_token_once(model):
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
