"""What NCCL, Gloo and CUDA say when they fail is explained, with what to do."""

from builders.cases import for_each

from penstock.protocol.errors import ConfigError, EngineDeadError
from penstock.protocol.ranks.nccl_failures import explained, with_explanation

HEAD = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {}, NCCL version 2.27.5\n{}\nLast error:\n{}"
)
SYSTEM = "unhandled system error (run with NCCL_DEBUG=INFO for details)"
SYSTEM_CLASS = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
USAGE = "invalid usage (run with NCCL_DEBUG=WARN for details)"
USAGE_CLASS = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."
REMOTE = "remote process exited or there was a network error"
REMOTE_CLASS = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
CUDA = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
CUDA_CLASS = "ncclUnhandledCudaError: Call to CUDA function failed."
SHM = "Error while creating shared memory segment /dev/shm/nccl-cjY8K5 (size 10617216), error: No space left on device"
NVLS = "Failed to bind NVLink SHARP (NVLS) Multicast memory"
CASES = [
    (HEAD.format(SYSTEM, SYSTEM_CLASS, SHM), "--shm-size=1g"),
    ("a:1:2 [0] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes",
     "/dev/shm is too small for the ranks of this machine (5967876 bytes)"),
    ("include/shm.h:28 NCCL WARN Call to posix_fallocate failed: No space left on device", "--shm-size=1g"),
    ("include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied", "can't be written by this user"),
    (HEAD.format(USAGE, USAGE_CLASS, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"),
     "same card (rank 1 and rank 0 both on CUDA device 4000)"),
    (HEAD.format(USAGE, USAGE_CLASS, "Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703"),
     "different versions of NCCL (rank 1 version 22705 rank 0 version 22703)"),
    ("transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these "
     "two devices", "NCCL_P2P_DISABLE=1"),
    ("torch/lib/libtorch_cuda.so: undefined symbol: ncclCommShrink", "(ncclCommShrink): take it off LD_LIBRARY_PATH"),
    (HEAD.format("internal error", "ncclInternalError", "Bootstrap : no socket interface found"), "NCCL_SOCKET_IFNAME"),
    (HEAD.format(SYSTEM, SYSTEM_CLASS, "socketStartConnect: Connect to 10.87.5.155<60728> failed : Software caused "
     "connection abort"), "can't be reached (10.87.5.155<60728>)"),
    ("Gloo connectFullMesh failed with [/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting: "
     "SO_ERROR: Connection refused, remote=[127.0.0.1]:30090$0", "can't be reached ([127.0.0.1]:30090): set PENSTOCK_"),
    ("[enforce fail at /third_party/gloo/gloo/transport/tcp/socket.cc:142] rv != -1. -1 vs -1. connect: Network is "
     "unreachable", "can't be reached: set PENSTOCK_HOST_IP"),
    (HEAD.format(REMOTE, REMOTE_CLASS, "NET/IB : Got completion from peer 10.0.35.1<49189> with error 12, opcode 0"),
     "NCCL_IB_DISABLE=1"),
    (HEAD.format(REMOTE, REMOTE_CLASS, "socketProgress: Connection closed by remote peer node1<45074>"),
     "Another rank has ended"),
    ("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:33201",
     "Another rank has ended"),
    ("[rank0]:[E ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
     "OpType=BROADCAST, NumelIn=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
     "waited for another until its time was up (SeqNum=1, OpType=BROADCAST"),
    ("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 600000ms for recv operation", "has waited"),
    (HEAD.format(CUDA, CUDA_CLASS, "Failed to CUDA calloc async 2432 bytes"), "smaller gpu_memory_utilization"),
    (HEAD.format(CUDA, CUDA_CLASS, "Cuda failure 'out of memory'"), "smaller gpu_memory_utilization"),
    (HEAD.format(CUDA, CUDA_CLASS, "Cuda failure 803 'system has unsupported display driver'"), "dmesg, Xid"),
    (HEAD.format(CUDA, CUDA_CLASS, "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"),
     "update it"),
    *((HEAD.format(CUDA, CUDA_CLASS, f"{NVLS} of size {size} : CUDA error {what}\nThis is usually caused by a "
       "system or configuration error in the Fabric Manager."), f"(NVLS) (CUDA error {what}): set NCCL_NVLS_ENABLE=0")
      for size, what in ((2097152, "401 'the operation cannot be performed in the present state'"), (0, "1"))),
    (HEAD.format(CUDA, CUDA_CLASS, NVLS), "(NVLS): set NCCL_NVLS_ENABLE=0"),
    *((f"gpu46:1:2 [{rank}] transport/nvls.cc:{line} NCCL WARN Cuda failure 1 'invalid argument'\nlater: Broken pipe",
       "(NVLS) (Cuda failure 1 'invalid argument')") for rank, line in ((0, 9), (7, 244), (3, 1598))),
    *((text, "start nvidia-fabricmanager") for text in (
        HEAD.format(CUDA, CUDA_CLASS, "Cuda failure 802 'system not yet initialized'"), "NCCL WARN Cuda failure 802",
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "CUDA error: 802",
        "cuda runtime error (802) : system not yet initialized", "cuda: error=802", "cudaErrorSystemNotReady",
        "CUDA_ERROR_SYSTEM_NOT_READY",
    )),
    ("The NVIDIA driver on your system is too old (found version 11040).", "update it"),
    (HEAD.format(SYSTEM, SYSTEM_CLASS, ""), "NCCL_DEBUG=INFO"),
    (HEAD.format("internal error - please report this issue to the NCCL developers", "ncclInternalError: Internal "
     "check failed.", ""), "NCCL_DEBUG=INFO"),
]  # fmt: skip


@for_each("text, words", CASES)
def test_a_failure_between_ranks_says_what_to_do(text, words):
    assert words in (explained(text) or ""), explained(text)
    told = with_explanation(RuntimeError(f"{text}\nException raised from …"))
    assert isinstance(told, EngineDeadError) and isinstance(told.__cause__, RuntimeError)
    assert words in str(told) and "Exception raised" not in str(told)
    assert "{" not in str(told) and ".." not in explained(text)


@for_each("error", [
    RuntimeError("Connection reset by peer"), ConfigError("NCCL error"), ValueError("nccl: Broken pipe"),
    EngineDeadError("The NCCL rank: Broken pipe"), RuntimeError("shape mismatch"),
    RuntimeError("CUDA error 8021"), RuntimeError("CUDA out of memory"), RuntimeError("error 802"),
])  # fmt: skip
def test_other_errors_stay_as_they_are(error):
    assert with_explanation(error) is error
