"""Limits that a process sets itself before work that may never end or grow without bound; the kernel keeps them."""

import math
import resource


def bound_memory(num_bytes: int) -> None:
    """So many bytes of address space beyond what it has now; and no core is dumped where they are not enough."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + num_bytes, resource.RLIM_INFINITY))


def bound_time(cpu_seconds: int) -> None:
    """So much processor time from now on; beyond it the kernel sends SIGXCPU."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


def address_space() -> int:
    """Bytes that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
