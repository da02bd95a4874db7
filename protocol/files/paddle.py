"""The refusal of a checkpoint in Paddle's own layout, whose weights are transposed.

Its publisher has the same model in Hugging Face's layout, under the same name with -PT at its end. The refusal
recommends that one unless it couldn't be read here either, as with models of experts or of images.
"""

import re

_ENDING = "-Paddle"
# Names that state active parameters ("21B-A3B"), or images.
_NOT_READ = re.compile(r"-A\d+(\.\d+)?B\b|\bVL\b|\bMoE\b", re.IGNORECASE)


def paddle_refusal(name: str) -> str:
    """The refusal in one or two sentences; `name` may be a folder's."""
    refusal = f"{name} is a checkpoint in Paddle's own layout, which is not read here."
    if _NOT_READ.search(name):
        return f"{refusal} Nor is its Hugging Face twin: models with experts or images are not supported."
    return f"{refusal} Use its Hugging Face twin, {name.removesuffix(_ENDING)}-PT."
