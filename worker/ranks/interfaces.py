"""Finds the network interface that has an address, by whose name NCCL is told where to listen."""

import ipaddress

import psutil


def interface_of(address: str) -> str | None:
    """The interface's name; None if no interface has this numeric address."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    for label, found in psutil.net_if_addrs().items():
        if any(_is(each.address, wanted) for each in found):
            return label.partition(":")[0]  # an alias ("eth0:1") is an address of eth0
    return "lo" if wanted.is_loopback else None


def _is(address: str, wanted: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]) == wanted
    except ValueError:  # that of the hardware
        return False
