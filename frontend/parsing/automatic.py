"""Chooses the row for `auto`, from a model's chat template and its special tokens."""

Signs = tuple[tuple[str, tuple[str, ...]], ...]

# The first row whose signs all stand in the template, or else among the special tokens, is taken; so those that share
# their marks with others stand before them.
REASONING_SIGNS: Signs = (
    ("seed-oss", ("<seed:think>",)),
    ("kimi-vl", ("◁think▷",)),
    ("mistral", ("[THINK]", "[/THINK]")),
    ("cohere", ("<|START_THINKING|>", "<|END_THINKING|>")),
    ("granite", ("Here is my thought process:",)),
    ("hunyuan", ("<think>", "<answer>")),
    ("deepseek-r1", ("<｜Assistant｜>", "</think>")),
    ("ernie-x1", ("</think>", "<response>")),
    ("deepseek-r1", ("<minimax:tool_call>", "</think>")),
    ("qwen3", ("<think>", "</think>")),
)
TOOL_CALL_SIGNS: Signs = (
    ("seed-oss", ("<seed:tool_call>",)),
    ("minimax-m2", ("<minimax:tool_call>",)),
    ("deepseek", ("<｜tool▁call▁begin｜>",)),
    ("kimi-k2", ("<|tool_call_begin|>",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("glm45", ("<tool_call>", "<arg_key>")),
    ("qwen3-coder", ("<tool_call>", "<function=")),
    ("ernie", ("<tool_call>", "<response>")),
    ("hermes", ("<tool_call>", "</tool_call>")),
    ("granite", ("<|tool_call|>",)),
    ("hunyuan", ("<tool_calls>", "</tool_calls>")),
    ("pythonic", ("[func_name1(",)),
    ("pythonic", ("<|python_start|>", "<|python_end|>")),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ('{"name": function name, "parameters":',)),
)


def automatic(signs: Signs, shown: str) -> str | None:
    """The row's name, or None."""
    return next((name for name, own in signs if all(sign in shown for sign in own)), None)
