"""How a model that can't be a GGUF file is refused."""

from ....protocol.errors import ConfigError


def inexpressible(why: str) -> ConfigError:
    return ConfigError(
        f"The model can't be written as GGUF: {why}. Without .gguf at the end of its name OUT becomes a folder, which "
        "can have this."
    )
