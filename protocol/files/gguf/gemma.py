"""What llama.cpp knows of Gemma's architectures by itself, since the files have no keys for it."""

# All layers but one of so many have a window.
WINDOWS_BUT_EVERY = {"gemma2": 2, "gemma3": 6, "gemma4": 6}
# The largest models, by their number of layers: they divide scores by the root of hidden size / heads.
LAYERS_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}
