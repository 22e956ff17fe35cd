"""Emulated interconnects: one network namespace a rank, joined by a bridge, each with a limited rate both ways.

Over plain loopback, communication between CPU ranks is nearly free and its volume does not show. Here each rank has a
network of its own (`ip netns`), whose one interface is slowed down by a token bucket (`tc ... tbf`), so that the
elements moved in the time of a floating-point operation are those of a real cluster. Needs root and iproute2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

INTERFACE = "emulated0"
_BURST_SECONDS = 0.004  # tokens that a bucket holds; a kernel tick or more, or the rate is not reached
_QUEUE_MS = 200  # what waits longer is dropped


class Links:
    """P namespaces, made on entry and removed on exit, or when this process is killed.

    Args:
        num_ranks: P.
        rate_mbit: what each rank can send, and receive, in Mbit/s.
    """

    def __init__(self, num_ranks: int, rate_mbit: float):
        self.num_ranks, self.rate_mbit = num_ranks, rate_mbit
        self._prefix = f"paradyse{os.getpid()}"
        self._bridge = f"{self._prefix}-bridge"

    def __enter__(self) -> Links:
        reason = unavailable()
        if reason is not None:
            raise ValueError(f"No interconnect can be emulated here: {reason}.")
        _clear_away()
        self._guard = self._start_guard()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def inside(self, rank: int, command: Sequence[str]) -> list[str]:
        """`command` as it runs on that rank's network."""
        return ["ip", "netns", "exec", self._namespace(rank), *command]

    def environment(self) -> dict[str, str]:
        """How ranks on these networks find each other; the port is free, as no one else is there."""
        return {"MASTER_ADDR": _address(0), "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": INTERFACE}

    def _namespace(self, rank: int) -> str:
        return f"{self._prefix}-{rank}"

    def _build(self) -> None:
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "bridge", "up")
        for rank in range(self.num_ranks):
            self._plug_in(rank)

    def _plug_in(self, rank: int) -> None:
        namespace, port = self._namespace(rank), f"port{rank}"
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", self._bridge)
        _ip("-n", namespace, "address", "add", f"{_address(rank)}/16", "dev", INTERFACE)
        _ip("-n", self._bridge, "link", "set", port, "master", "bridge")
        for where, device in ((namespace, INTERFACE), (self._bridge, port)):
            _ip("-n", where, "link", "set", device, "up")
            self._slow_down(where, device)

    def _slow_down(self, namespace: str, device: str) -> None:
        burst_bytes = max(int(self.rate_mbit * 1e6 / 8 * _BURST_SECONDS), 65536)
        limit = f"rate {int(self.rate_mbit * 1000)}kbit burst {burst_bytes} latency {_QUEUE_MS}ms"
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *limit.split())

    def _start_guard(self) -> subprocess.Popen[bytes]:
        """A process that removes the networks once this one is gone, however it was ended.

        It waits for the end of a pipe that nobody writes to, in a session of its own, where no signal of ours arrives.
        """
        removing = "; ".join(f"ip netns delete {namespace} 2>/dev/null" for namespace in self._namespaces())
        return subprocess.Popen(["sh", "-c", f"read _; {removing}"], stdin=subprocess.PIPE, start_new_session=True)

    def _remove(self) -> None:
        for namespace in self._namespaces():
            _delete(namespace)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _namespaces(self) -> list[str]:
        return [self._bridge, *map(self._namespace, range(self.num_ranks))]


def unavailable() -> str | None:
    """Why no interconnect can be emulated on this machine; None when one can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool} is missing (package iproute2)"
    probe = f"paradyse{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"making a network namespace needs root ({made.stderr.strip()})"
    _delete(probe)
    return None


def _clear_away() -> None:
    """Remove the namespaces of processes that were killed before they could."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for namespace in (line.split()[0] for line in listed.splitlines() if line):
        owner = re.fullmatch(r"paradyse(\d+)-.+", namespace)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            _delete(namespace)


def _delete(namespace: str) -> None:
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _address(rank: int) -> str:
    return f"10.77.0.{rank + 1}"


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"'{' '.join(command)}' failed: {done.stderr.strip()}")
