"""The agent's core, written in Rust (`tracer/core/python`). Each part lists its own; a test checks this file."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

# capture; a filter program is classic BPF: (code, jt, jf, k) of each instruction

def payload_snaplen(payload: str) -> int: ...
def built_in_filter(
    ethernet: bool, snaplen: int, excluded: Sequence[tuple[IPv4Address | IPv6Address, int]] = ()
) -> list[tuple[int, int, int, int]]: ...
def sampling_depths(
    ends: Sequence[tuple[IPv4Address | IPv6Address | str, int, IPv4Address | IPv6Address | str, int]],
) -> list[int]: ...
def host_addresses() -> list[IPv4Address | IPv6Address]: ...

class Capture:
    def __new__(
        cls,
        interfaces: Sequence[str],
        folder: str,
        host: str,
        application: str,
        os: str,
        *,
        payload: str,
        snaplen: int,
        ring_bytes: int,
        rings_bytes: int,
        segment_bytes: int,
        segment_age_ns: int,
        first_number: int,
        stem: str,
        expression: str = "",
        ethernet_filter: Sequence[tuple[int, int, int, int]] | None = None,
        raw_ip_filter: Sequence[tuple[int, int, int, int]] | None = None,
        excluded: Sequence[tuple[IPv4Address | IPv6Address, int]] = (),
        clock_error: tuple[int, int, int] = (0, 0, 0),
        secrets: Secrets | None = None,
        owners: bool = True,
        owners_parts: int = 0,
        kept: tuple[int, int | None] | None = None,
        timestamps: str = "software",
    ) -> Capture: ...
    def keep(self, depth: int, head_bytes: int | None) -> None: ...
    def exclude(self, excluded: Sequence[tuple[IPv4Address | IPv6Address, int]]) -> None: ...
    def stop(self) -> None: ...
    def wait(self, timeout_ns: int) -> bool: ...
    def raise_error(self) -> None: ...
    def take_notices(self) -> list[str]: ...
    def counts(self) -> tuple[int, int, int, int, int, int, int]: ...

# a capture that another program makes elsewhere; an interface is (name, number there, Ethernet address)

class StreamedCapture:
    def __new__(
        cls,
        interfaces: Sequence[tuple[str, int, bytes]],
        folder: str,
        host: str,
        application: str,
        os: str,
        addresses: Sequence[IPv4Address | IPv6Address],
        *,
        payload: str,
        secrets: Secrets,
    ) -> StreamedCapture: ...
    def feed(self, piece: bytes) -> None: ...
    def finish(self, dropped_count: int) -> None: ...
    def counts(self) -> tuple[int, int, int, int]: ...

# segments as they are sent

def pack(pcapng: bytes) -> bytes: ...

# secrets

class Secrets:
    def __new__(cls, more: str = "", *, nothing: bool = False) -> Secrets: ...
    def text(self, text: str) -> str: ...
    def words(self, argv: Sequence[str]) -> list[str]: ...
    def payload(self, payload: bytes) -> bytes: ...
