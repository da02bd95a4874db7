"""Checks the options of a tree whose ranks are on several machines, and reads the key that these share."""

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from .config import EngineConfig

KEY_VARIABLE = "PENSTOCK_NODE_KEY"
ADDRESS_VARIABLE = "PENSTOCK_HOST_IP"  # of this machine, for the ranks of others
_FEWEST_BYTES, _MOST_BYTES = 16, 4096
_MAKE = "`(umask 077; openssl rand -hex 32 > node.key)` makes one; copy it to every machine"


def check_nodes(config: "EngineConfig") -> None:
    """Raise if options don't go together with several machines."""
    if config.node_rank >= config.nnodes:
        raise ConfigError(
            f"node_rank={config.node_rank} and nnodes={config.nnodes}: the machines are numbered from 0 to nnodes - 1."
        )
    if config.nnodes == 1:
        return
    is_told = config.node_rank > 0 and config.tensor_parallel_size == 1  # by node 0
    if config.tensor_parallel_size % config.nnodes and not is_told:
        raise ConfigError(
            f"tensor_parallel_size={config.tensor_parallel_size} can't be shared evenly by nnodes={config.nnodes}. Use "
            f"a multiple of {config.nnodes} on node 0; other machines (`penstock worker`) give a --node-rank instead."
        )
    drafts = config.speculative_config is not None and config.speculative_config.model is not None
    given = {
        "data_parallel_size": config.data_parallel_size > 1,
        "prefix_cache_dir and prefix_cache_size": config.keeps_prefixes,
        "a model in speculative_config": drafts,
    }
    if name := next((name for name, is_given in given.items() if is_given), None):
        raise ConfigError(f"nnodes={config.nnodes}: {name} works on one machine only so far. Leave one of them out.")
    if config.master_addr in ("", "0.0.0.0", "::", "*") or set(config.master_addr) & set("/ *"):
        raise ConfigError(
            f"master_addr={config.master_addr!r} must be an address or name by which others reach node 0."
        )


def require_front_end(config: "EngineConfig") -> None:
    """Raise unless a front end may start its tree on this machine."""
    if config.node_rank > 0:
        raise ConfigError(
            f"node_rank={config.node_rank}: the front end is on node 0. Run `penstock worker {config.model} --nnodes "
            f"{config.nnodes} --node-rank {config.node_rank} --master-addr {config.master_addr} --master-port "
            f"{config.master_port}` on this machine."
        )


def node_key(config: "EngineConfig") -> bytes:
    """The key that machines of one tree share, of the file or the environment."""
    if config.node_key_file is not None:
        source, key = f"node_key_file={config.node_key_file}", _read(Path(config.node_key_file).expanduser())
    elif KEY_VARIABLE in os.environ:
        source, key = KEY_VARIABLE, os.environb[KEY_VARIABLE.encode()].strip()
    else:
        raise ConfigError(
            f"nnodes={config.nnodes} needs a key that the machines share, in a file (node_key_file) or in "
            f"{KEY_VARIABLE}. {_MAKE}."
        )
    if not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        has = f"more than {_MOST_BYTES:,}" if len(key) > _MOST_BYTES else str(len(key))
        raise ConfigError(
            f"{source}: the key has {has} bytes, and must have {_FEWEST_BYTES} to {_MOST_BYTES:,}. {_MAKE}."
        )
    return key


def own_address(config: "EngineConfig") -> str:
    """The address at which other machines reach the ranks of this one: the one that the way to node 0 begins at."""
    if given := os.environ.get(ADDRESS_VARIABLE):
        return _checked(given, config)
    try:
        family, _, _, _, where = socket.getaddrinfo(config.master_addr, config.master_port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            if config.node_rank == 0:
                return str(where[0])
            probe.connect(where)  # sends nothing
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"master_addr={config.master_addr!r} can't be reached: {_reason(error)}. Give an address of node 0, or "
            f"this machine's own in {ADDRESS_VARIABLE}."
        ) from error


def is_loopback(address: str) -> bool | None:
    """Return whether only this machine reaches an address or name; None for a name that nobody knows."""
    with suppress(OSError, UnicodeError):
        return ipaddress.ip_address(socket.getaddrinfo(address, 0)[0][4][0]).is_loopback
    return None


def _checked(address: str, config: "EngineConfig") -> str:
    """The numeric address, if it is one of this machine's that others can reach: the ranks listen there."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(where)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{ADDRESS_VARIABLE}={address} is no address of this machine: {_reason(error)}. Unset it, or give the one "
            "at which the other machines reach this one."
        ) from error
    numeric = ipaddress.ip_address(str(where[0]).partition("%")[0])
    if numeric.is_unspecified or numeric.is_multicast or (numeric.version == 6 and numeric.is_link_local):
        raise ConfigError(
            f"{ADDRESS_VARIABLE}={address} can't lead other machines to this one: it is no address of one machine, or "
            "one that means something else on each. Unset it, or give the one at which they reach this machine."
        )
    if is_loopback(address) and is_loopback(config.master_addr) is False:
        raise ConfigError(
            f"{ADDRESS_VARIABLE}={address} is a loopback address, which only this machine reaches, and node 0 is at "
            f"master_addr={config.master_addr!r}. Unset it, or give this machine's address in that network."
        )
    return str(where[0])


def _reason(error: OSError | UnicodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe would wait for its writer
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise ConfigError(
                    f"node_key_file={path} must be a file of this user's that nobody else may read: `chmod 600 {path}`."
                )
            return file.read(_MOST_BYTES + 1).strip()
    except OSError as error:
        raise ConfigError(f"node_key_file={path} can't be read: {error.strerror}. {_MAKE}.") from error
