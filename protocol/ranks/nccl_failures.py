"""Explains failures of NCCL and Gloo, the libraries between ranks, and of CUDA: what has happened, and what to do.

They report a class of errors ("unhandled system error"), often a reason below "Last error:", and more in the log. The
rows of the table go from reasons to classes; the first match counts.
"""

import re

from ..errors import EngineDeadError, LostRankError

_ABOUT_CUDA = re.compile("cuda|nvidia driver", re.IGNORECASE)
_ABOUT_RANKS = re.compile("nccl|gloo", re.IGNORECASE)
_SEE_MORE = "NCCL_DEBUG=INFO in the environment writes the reason to the log."
_SHM = (
    "/dev/shm is too small for the ranks of this machine{found}; a container has 64 MB there by default. Give it more "
    "(docker run --shm-size=1g or --ipc=host; in Kubernetes an emptyDir with medium: Memory at /dev/shm), or "
    "set NCCL_SHM_DISABLE=1, which is slower"
)
_LOST = "Another rank has ended, or the network to it: this one only noticed; the first error of the log is the cause"
_FABRIC = "in a container or a virtual machine it belongs to the host; `nvidia-smi -q` shows the state of its Fabric"
# What to look for, and a sentence in which {found} stands for the first group of it, in parentheses.
_REASONS_OF_CUDA: tuple[tuple[str, str], ...] = (
    (
        r"CUDA driver version is insufficient|forward compatibility was attempted|driver on your system is too old",
        "The driver is older than this torch's CUDA: update it, or install a torch for an older CUDA",
    ),
    (
        r"system not yet initialized|(?i:cuda\b.*(?:error|failure)[ =:(]+802\b)|ErrorSystemNotReady|"
        "ERROR_SYSTEM_NOT_READY",
        "The switches between the cards (NVSwitch) aren't ready: start nvidia-fabricmanager, in the driver's own "
        f"version; {_FABRIC}",
    ),
)
_REASONS: tuple[tuple[str, str], ...] = (
    (r"(?:/dev/shm/nccl-|posix_fallocate)[^\n]*No space left on device", _SHM),
    (r"(?:failed to extend|creating shared memory segment) /dev/shm/nccl-\w+ (?:to|\(size) (\d+[^\n),]*)", _SHM),
    (
        r"shm_open[^\n]*Permission denied|/dev/shm/nccl-[^\n]*Permission denied",
        "/dev/shm can't be written by this user: it has mode 1777 as a rule",
    ),
    (
        r"Duplicate GPU detected : (rank \d+ and rank \d+ both on CUDA device \w+)",
        "Two ranks have the same card{found}: name as many different ones with devices= or CUDA_VISIBLE_DEVICES",
    ),
    (
        r"peer access is not supported between these two devices|failed to open CUDA IPC handle|P2P/IPC[^\n]*failed",
        "These cards can't read each other's memory: set NCCL_P2P_DISABLE=1, and disable_custom_all_reduce=True",
    ),
    (
        r"Mismatched NCCL version detected : (rank \d+ version \d+ rank \d+ version \d+)",
        "The ranks have different versions of NCCL{found}: install the same torch on all machines",
    ),
    (
        r"undefined symbol: (nccl\w+)|version lookup error[^\n]*(nccl\w*)",
        "Another NCCL is found before the one that torch was built with{found}: take it off LD_LIBRARY_PATH and "
        "LD_PRELOAD, or install the nvidia-nccl package that this torch requires again",
    ),
    (
        r"[Nn]o socket interface found",
        "NCCL finds no network interface: NCCL_SOCKET_IFNAME names one that isn't there; unset it, or take a name from "
        "`ip link`",
    ),
    (
        r"(?:Connect to|connect to) (\S+) (?:failed|returned)[^\n]*"
        r"(?:refused|[Nn]o route|[Uu]nreachable|timed out|abort|requested address)|"
        r"connecting: SO_ERROR: [^\n]*remote=(\[\S+\]:\d+)|gloo[^\n]* connect: [^\n]*",
        "Another rank's address can't be reached{found}: set PENSTOCK_HOST_IP on its machine to one that the others "
        "reach, or open the firewall between them; for NCCL, NCCL_SOCKET_IFNAME may also name the wrong interface",
    ),
    (
        r"(NET/IB : Got completion[^\n]*|ibv_\w+ failed[^\n]*)",
        "InfiniBand or RoCE has failed{found}: check the links (ibstat), or set NCCL_IB_DISABLE=1 to go over sockets",
    ),
    (
        r"no kernel image is available|named symbol not found",
        "This NCCL has no code for these cards: install a torch that was built for them",
    ),
    (
        r"(Failed to CUDA (?:calloc|malloc)[^\n]*)|Cuda failure[^\n]*out of memory",
        "A card has no memory left for NCCL's buffers{found}: use a smaller gpu_memory_utilization",
    ),
    (
        r"Watchdog caught collective operation timeout(?:: WorkNCCL\(([^\n]*?)\) ran)?|Timed out waiting \d+ms for",
        "A rank has waited for another until its time was up{found}: the other hangs, has died, or reads its weights "
        "from a much slower disk; see its part of the log",
    ),
    (
        r"NVLink SHARP \(NVLS\)(?:[^\n]*?(CUDA error[^\n]*))?|transport/nvls\.cc:\d+ NCCL WARN ([^\n]*)",
        "NCCL can't add up in the switches between the cards (NVLS){found}: set NCCL_NVLS_ENABLE=0, or restart "
        f"nvidia-fabricmanager; {_FABRIC}",
    ),
    (
        r"ncclRemoteError|remote process exited|Connection closed by (?:remote )?peer|Connection reset by peer|"
        r"Broken pipe|gloo/transport/tcp[^\n]*(?:Read|Write|Connection)",
        _LOST,
    ),
    (
        r"ncclSystemError|unhandled system error",
        "A system call of NCCL's has failed, for want of shared memory, memory, descriptors (ulimit -n, ulimit -l) or "
        f"network. {_SEE_MORE[:-1]}",
    ),
    (
        r"ncclUnhandledCudaError|unhandled cuda error",
        "CUDA has failed in NCCL: see nvidia-smi and the kernel's log (dmesg, Xid) for a card that has failed. "
        f"{_SEE_MORE[:-1]}",
    ),
    (
        r"ncclInternalError|internal error - please report|ncclInvalidUsage|ncclInvalidArgument|invalid usage",
        f"NCCL refuses what the ranks asked for, or has a fault. {_SEE_MORE[:-1]}",
    ),
)


def explained(text: str) -> str | None:
    """What the text of an error, or the end of a log, says about NCCL or CUDA, and what to do; None if nothing."""
    of_cuda = _REASONS_OF_CUDA if _ABOUT_CUDA.search(text) else ()
    of_ranks = _REASONS if _ABOUT_RANKS.search(text) else ()
    for pattern, sentence in (*of_cuda, *of_ranks):
        if (match := re.search(pattern, text)) is not None:
            found = next(filter(None, match.groups()), None)
            return sentence.format(found=f" ({found.strip()})" if found else "") + "."
    return None


def with_explanation(error: BaseException) -> BaseException:
    """The error of a rank, explained if a library between ranks has raised it."""
    if not isinstance(error, (RuntimeError, OSError, ImportError)) or isinstance(error, EngineDeadError):
        return error
    if (words := explained(str(error))) is None:
        return error
    first = str(error).strip().partition("\n")[0]
    kind = LostRankError if words == f"{_LOST}." else EngineDeadError
    told = kind(f"{words} The library's own words: {first}")
    told.__cause__ = error
    return told
