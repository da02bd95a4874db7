"""Prints this machine's versions and the packages that the checks need and it lacks; exits with 3 if there are any."""

import importlib.metadata
import os
import platform
import sys

_KNOWN = ("torch", "triton", "transformers", "numpy", "tokenizers", "safetensors", "jinja2", "psutil", "uvloop", "tqdm")
# What a machine with torch and transformers may lack, as small wheels that can be carried there. `conftest.py` of the
# tests imports `hypothesis`, which imports `sortedcontainers`.
_TRAVEL = ("msgspec", "pyzmq", "llguidance", "huggingface_hub", "pytest", "hypothesis", "sortedcontainers")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> int:
    print("python", platform.python_version(), "cores", len(os.sched_getaffinity(0)))
    missing = [name for name in (*_KNOWN, *_TRAVEL) if not _is_there(name)]
    if missing:
        version = ".".join(platform.python_version_tuple()[:2])
        platforms = " ".join(f"--platform {name}" for name in _PLATFORMS)
        command = f"pip download --no-deps --only-binary=:all: --python-version {version} {platforms} -d wheels"
        print(f"Missing: {', '.join(missing)}. Where there is a network, run\n  {command} {' '.join(missing)}")
        print("and take the folder along: WHEELS=wheels")
    if "torch" not in missing:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "and no device"
        print("CUDA", torch.version.cuda, device)
    if missing:
        return 3
    import penstock
    from penstock.kernels import triton

    lack = triton.lack()
    print("penstock", penstock.__version__, lack or "can launch kernels")
    return 1 if lack and torch.cuda.is_available() else 0


def _is_there(name: str) -> bool:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print(name, "is not installed")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
