"""Loopback ports that stay ours: reserved before a server starts and while it is stopped, without a race.

The kernel hands out a free port to a socket that is bound but never listens. While it is held, nobody else is given
that port, neither for listening nor for an outgoing connection, yet a server that sets SO_REUSEADDR (as every Go
server does) may listen on it. So a component that is killed and started again finds its port free.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class ReservedPort:
    """One TCP port of 127.0.0.1, held until `release()`."""

    __slots__ = ("_socket", "number")

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((LOOPBACK, 0))
        # Only after bind: set before it, the kernel may hand out a port that another such socket holds.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Gives the port back; again is harmless."""
        self._socket.close()
