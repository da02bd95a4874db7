"""Finds the network interface that has an address, by whose name NCCL is told where to listen."""

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_IPV6 = Path("/proc/net/if_inet6")


def interface_of(address: str) -> str | None:
    """The interface's name; None if no interface has this address."""
    wanted = ipaddress.ip_address(address)
    if wanted.version == 6:
        lines = _IPV6.read_text().splitlines() if _IPV6.exists() else []
        return next((line.split()[-1] for line in lines if int(line.split()[0], 16) == int(wanted)), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                found = fcntl.ioctl(asked, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()[:15]))
                if found[20:24] == wanted.packed:
                    return name
    return "lo" if wanted.is_loopback else None
