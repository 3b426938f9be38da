"""What independent sources show of a run: the programs' own logs, counters of the kernel, the fault that was injected.

Nothing here comes from a packet. It is written beside the captures as `truth.json`, so a kept run is judged again
without the systems.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Call:
    """One request, as logs have it."""

    id: str
    server: str  # "address:port" that it was sent to
    target: str = ""  # as on the wire; "" where the protocol has none, or it is not of this call alone
    client_port: int = 0  # as the server knows it; 0 if no log has it
    started_ns: int = 0  # since the epoch, by the log that has it; gives the order on a connection
    server_ns: int | None = None  # how long, by the server's own log
    server_resolution_ns: int = 1_000
    client_ns: int | None = None  # how long, by the client's own log, from the first byte it wrote to the last it read
    client_resolution_ns: int = 1_000
    most_ns: int | None = None  # it took no longer at its server, by the log of something that it is a part of
    connect_ns: int | None = None  # of a client that opened a connection for it: how long that took it
    status: int = 200
    name: str = ""  # method and target, as they must be shown; "" if nothing says
    result: str = ""  # the code of an error, in the protocol's words; judged of calls with a name
    abandoned: bool = False  # its client did not wait for the answer
    parent: str | None = None  # the call that caused it; "" for a client's own, None where no log says


@dataclass(slots=True)
class Fault:
    """What was injected; any of `kinds` names it, on any of `hosts`."""

    words: str
    kinds: tuple[str, ...]
    hosts: tuple[str, ...]


@dataclass(slots=True)
class StreamTruth:
    """What goes on at a server that is no request."""

    server: str  # "address:port"
    count: int  # connections of that kind
    to_clients: tuple[int, int]  # messages to all of them: at least, at most (greetings, confirmations, closing)


@dataclass(slots=True)
class Truth:
    """All that is known of a run."""

    calls: list[Call] = field(default_factory=list)
    streams: list[StreamTruth] | None = None  # if given, the only ones
    names: dict[str, str] = field(default_factory=dict)  # "address:port" to a pattern that its service's name matches
    products: tuple[str, ...] = ()  # words that the texts may use although they name a product or a role
    lost: int | None = 0  # packets lost between the hosts, by the kernel's counters; None where nothing counts them
    fault: Fault | None = None
    links_right: float = 0.95  # least share of links to be right (less where too little is on the wire to know them by)
    http_heads: bool = (
        False  # calls are all that has HTTP heads, and nothing else; `server_ns` ends with the answer's first byte
    )
    ledger: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Columns of the ledger, with `+` between them, to the least and most time of a client's request on average, ns."""
    only: tuple[str, ...] = ()  # if given, the statements that are judged (the beginnings of their words)
    handshakes: list[dict[str, Any]] = field(default_factory=list)
    """Of a TLS connection its `server`, its `client_port`, and what its client or server says of the handshake, by the
    columns of `connections` that must say the same."""
    more: dict[str, float] = field(default_factory=dict)  # what one scenario alone needs

    def write(self, folder: Path) -> None:
        """Beside the captures."""
        (folder / "truth.json").write_text(json.dumps(dataclasses.asdict(self), indent=1), "utf-8")


def read_truth(folder: Path) -> Truth:
    """What `Truth.write` left there."""
    found = json.loads((folder / "truth.json").read_text("utf-8"))
    fault = found.pop("fault")
    calls = [Call(**call) for call in found.pop("calls")]
    made = None if fault is None else Fault(fault["words"], tuple(fault["kinds"]), tuple(fault["hosts"]))
    streams = found.pop("streams", None)
    if streams is not None:
        streams = [StreamTruth(one["server"], one["count"], tuple(one["to_clients"])) for one in streams]
    products, only = tuple(found.pop("products")), tuple(found.pop("only"))
    ledger = {part: (low, high) for part, (low, high) in found.pop("ledger", {}).items()}
    made_of = {"fault": made, "products": products, "only": only, "ledger": ledger, "streams": streams}
    return Truth(calls=calls, **made_of, **found)
