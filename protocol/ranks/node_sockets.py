"""The connection between the machines of a tree: ZeroMQ over TCP, encrypted and authenticated by CURVE.

Both key pairs follow from the key that the machines share, so whoever doesn't know it can't complete a handshake.
Node 0 listens until all have joined, and not a moment longer. ZeroMQ's own threads ask each other for a sign of
life every second, and close a connection that is silent.
"""

import ctypes
import hashlib
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from ..errors import ConfigError
from ..processes.sockets import LONGEST_FRAME
from .node_messages import BEAT_SECONDS, SILENCE

_HANDSHAKE_MILLISECONDS = 5000  # a stranger that says nothing is disconnected then
_RECONNECT_MILLISECONDS, _LONGEST_RECONNECT = 100, 2000
_LINGER_MILLISECONDS = 500
_ZAP = "inproc://zeromq.zap.01"  # where libzmq asks whether a client's key is welcome (RFC 27)
_BACKLOG = 128
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # struct sock_filter: return 0, of each packet keep nothing
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class KeyPair(NamedTuple):
    public: bytes
    secret: bytes


def key_pairs(key: bytes) -> tuple[KeyPair, KeyPair]:
    """Node 0's, and that of all others."""
    if not zmq.has("curve"):
        raise ConfigError(
            "This pyzmq was built without libsodium, whose CURVE machines need. Install its wheel instead."
        )
    octets = hashlib.scrypt(key, salt=b"penstock ranks on several machines", n=1 << 14, r=8, p=1, dklen=64)
    secrets = [z85.encode(each) for each in (octets[:32], octets[32:])]
    server, client = (KeyPair(zmq.curve_public(secret), secret) for secret in secrets)
    return server, client


def endpoint(address: str, port: int) -> str:
    """The ZeroMQ address; raises ConfigError for a name that nobody knows."""
    try:
        numeric = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"master_addr={address!r} can't be found: {reason}. Give an address of node 0.") from error
    return f"tcp://[{numeric}]:{port}" if ":" in str(numeric) else f"tcp://{numeric}:{port}"


def drop_packets(listener: socket.socket) -> None:
    """Nobody hears of a socket from now on; OSError where this user may not ask for that."""
    program = ctypes.create_string_buffer(_DROP_ALL)
    filter_program = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))  # struct sock_fprog
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_program)


class LinkSocket:
    """Node 0's end."""

    def __init__(self, address: str, port: int, key: bytes) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        server, client = key_pairs(key)
        self._welcome = z85.decode(client.public)
        self.questions = context.socket(zmq.REP)  # before anybody can connect
        self.questions.bind(_ZAP)
        self.socket = _secured(context.socket(zmq.ROUTER), server)
        self.socket.setsockopt(zmq.CURVE_SERVER, 1)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # what is sent to a machine that is gone is an error
        self._listener, where = self._listen(address, port)
        self.socket.setsockopt(zmq.USE_FD, self._listener.fileno())
        self.socket.bind(where)

    @staticmethod
    def _listen(address: str, port: int) -> tuple[socket.socket, str]:
        """A listener that libzmq gets, and its address."""
        where = endpoint(address, port)
        listener = socket.socket(socket.AF_INET6 if "[" in where else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((where[6:].rpartition(":")[0].strip("[]"), port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"master_addr={address!r} can't be listened at with master_port={port}: {error.strerror}. Give an "
                "address of this machine (it is node 0) and a port that is free."
            ) from error
        return listener, where

    def answer(self) -> None:
        """Answer a question of libzmq's: a client has proved that it has this key."""
        version, number, _, _, _, mechanism, *credentials = self.questions.recv_multipart()
        is_welcome = mechanism == b"CURVE" and credentials == [self._welcome]
        status = (b"200", b"OK") if is_welcome else (b"400", b"another key")
        self.questions.send_multipart([version, number, *status, b"", b""])

    def stop_listening(self) -> None:
        """Let the kernel drop whatever asks for a connection. (`unbind` would cut those that there are.)"""
        with suppress(OSError):  # some kernels allow that to root alone: strangers are refused one by one there
            drop_packets(self._listener)

    def receive(self) -> list[bytes] | None:
        """The sender's identity and its message; None if there is none now."""
        return _received(self.socket)

    def send(self, identity: bytes, *frames: bytes) -> bool:
        """Returns whether that machine is still connected."""
        try:
            self.socket.send_multipart([identity, *frames])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def close(self) -> None:
        self.questions.close(linger=0)
        self.socket.close()
        self._listener.detach()  # it is libzmq's


class NodeSocket:
    """The end of a machine that joins; it connects as soon as node 0 listens."""

    def __init__(self, address: str, port: int, key: bytes) -> None:
        where = endpoint(address, port)
        server, client = key_pairs(key)
        self.where = f"{address} port {port}"
        self.socket = _secured(zmq.Context.instance().socket(zmq.DEALER), client)
        self.socket.setsockopt(zmq.CURVE_SERVERKEY, server.public)
        self.socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MILLISECONDS)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, _LONGEST_RECONNECT)
        self.socket.setsockopt(zmq.CONNECT_TIMEOUT, _HANDSHAKE_MILLISECONDS)  # the kernel's own tries get rare
        self.events = self.socket.get_monitor_socket(_FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self.num_connections = 0
        self.num_refusals = 0  # handshakes in a row that the other side has broken off
        self.is_cut = False  # the last connection has ended
        self.socket.connect(where)

    def note_event(self) -> None:
        event = parse_monitor_message(self.events.recv_multipart())["event"]
        if event & _FAILED:
            self.num_refusals += 1
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.num_connections += 1
            self.num_refusals, self.is_cut = 0, False
        else:
            self.is_cut = self.num_connections > 0

    def receive(self) -> list[bytes] | None:
        return _received(self.socket)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def close(self) -> None:
        self.socket.disable_monitor()
        self.events.close(linger=0)
        self.socket.close()


def _secured(made: "zmq.Socket[bytes]", own: KeyPair) -> "zmq.Socket[bytes]":
    """The socket with its keys and limits."""
    made.setsockopt(zmq.CURVE_PUBLICKEY, own.public)
    made.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
    made.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MILLISECONDS)
    made.setsockopt(zmq.HEARTBEAT_IVL, int(1000 * BEAT_SECONDS))
    made.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1000 * SILENCE))
    made.setsockopt(zmq.MAXMSGSIZE, LONGEST_FRAME)
    made.setsockopt(zmq.LINGER, _LINGER_MILLISECONDS)
    made.setsockopt(zmq.IPV6, 1)
    for limit in (zmq.SNDHWM, zmq.RCVHWM):
        made.setsockopt(limit, 0)
    return made


def _received(own: "zmq.Socket[bytes]") -> list[bytes] | None:
    try:
        return own.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
