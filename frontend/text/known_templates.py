"""Chat templates that were read and are known to write no more than a conversation needs.

They are rendered where the caller is; any other one goes to a process with limits (`template_process.py`), because
nothing but running it shows what a template does.
"""

import hashlib
from functools import lru_cache

# SHA-256 of the text without white space around it, its first half.
_KNOWN = frozenset({
    "793202280c0910ab26bc6eb57c8212c2",  # chatml
    "62204601b00b28f7c79cc4c1a462fead",  # command-r-rag
    "d57f48ea5f23fda954cf664fc9fc3654",  # command-r-tool-use
    "60f9c8211a23cd1aa3bb3941c474ce43",  # deepseek-r1
    "cb09a9fdcd2c597e79ac3e2c00a05d8a",  # ernie4.5
    "ecd6ae513fe103f0eb62e8ab5bfa8d0f",  # gemma
    "8d9e3a3c114fb2053ec500184677af4f",  # gemma3
    "48219f087587e1b427f6a5c62a63a829",  # glm4.5
    "92ec60d35b32ac7f417dd6e3cb9bda0c",  # gpt-oss
    "e3734e46e7e284fde97aa439c7cc3593",  # granite
    "988db97e4a4c3443fe6b3617dfe72034",  # kimi-k2
    "68bfda928bac6357e05caf5b1482954a",  # llama3
    "692c11f5de7b7a82421a4760ab94a1dd",  # mistral-v3
    "8fdb6d4412317d7c8fd07555d72c1b53",  # mistral-v7
    "78d976a442bcde2f0be15aafbb8e3050",  # phi3
    "f4db0f6a5b182f3a22b82205e50aec87",  # phi4
    "251b602f6226a121d0d36636f8e9936e",  # qwen2.5
    "838058b5a1a13092e502104f0941de3f",  # qwen3.5
    "e4db1dd8496264f272f7bcf7da4b0053",  # qwen3
    "d7d4546648af547f256e34ae9d066d57",  # reka
    "2bed1942228a2d3371ff2b3526746a17",  # step3.5
    "66291cf0045c2425a3a667cf3cbb7af2",  # zephyr
    "f67c052ba79fcc7e9d8322a5136709d4",  # pocket
    "50cbca23b69758f321b3da15ade78256",  # pocket_sight
})  # fmt: skip


@lru_cache(maxsize=64)
def is_known(template: str) -> bool:
    return hashlib.sha256(template.strip().encode(errors="surrogatepass")).hexdigest()[:32] in _KNOWN
