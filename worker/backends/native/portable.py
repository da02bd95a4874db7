"""Native kernels in the arithmetic that all kinds of CPUs share: an answer has the same bits on each of them.

docs/cpu-kernels.md says what that takes. Weights keep their formats; bfloat16 is widened to float32 for its products.
"""

from ....protocol.errors import ConfigError
from ....records import dataclass
from .backend import NativeBackend

_KV_KINDS = ("fp32", "int8", "uint4")


@dataclass(frozen=True)
class PortableBackend(NativeBackend):
    """Created with a portable library."""

    @property
    def kernels(self) -> str:
        return f"{super().kernels}, portable"

    def own_kv_kind(self, kind: str) -> str:
        return kind if kind in _KV_KINDS else "fp32"

    def kv_kind(self, kind: str) -> str:
        if kind not in _KV_KINDS:
            raise ConfigError(
                f"kv_cache_dtype={kind!r} is not for deterministic='portable': CPUs multiply it in different ways. Use "
                f"{', '.join(_KV_KINDS[:-1])} or {_KV_KINDS[-1]}."
            )
        return kind
