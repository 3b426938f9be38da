"""Captures that others took, with their own truth: a folder with subfolders of

    HOST.pcap[.gz]          of each host of `topology.json` (`hosts`; `system`, in words; `ports`, to names)
    truth_http.json[.gz]    every HTTP exchange: `conn` ("addr:port>addr:port"), `path`, `status`, `tx`, `client`,
                            `req_recv_ns`, `rsp_send_ns`: the first packets of request and response at the server

The runs are clean: nothing was lost, nothing injected.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.real_systems.judge import ROLES, judge
from benchmarks.real_systems.lab import LabError
from benchmarks.real_systems.run import Judged
from benchmarks.real_systems.said import say
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.verdict import Verdict

BY = "tcpdump"
CLIENT = "client"


def judged_captures(folder: Path, out: Path) -> Iterator[Judged]:
    """The verdicts on each capture in a folder; those without `truth_http.json` are left out."""
    for each in sorted(path for path in folder.iterdir() if path.is_dir() and any(path.glob("truth_http.json*"))):
        topology = _read(each, "topology.json")
        captures = [str(next(each.glob(f"{host}.pcap*"))) for host in topology["hosts"]]
        (out / each.name).mkdir(parents=True, exist_ok=True)
        words = topology["system"].split(",")[0]
        try:
            verdicts = tuple(judge(say(captures, out / each.name), capture_truth(each, topology)))
        except LabError as error:
            verdicts = (Verdict("a trace can be made", "yes", str(error), right=False),)
        yield Judged(each.name, words, BY, verdicts)


def capture_truth(folder: Path, topology: dict[str, Any]) -> Truth:
    """What is known of one."""
    calls = [_call(line) for line in _read(folder, "truth_http.json")]
    ports = {call.server: call.server.rpartition(":")[2] for call in calls}
    named = {
        server: rf"{topology['ports'].get(port, 'port ' + port)}|.*\b{port}|http" for server, port in ports.items()
    }
    there = topology["system"].lower()
    products = [word for word in ROLES if word in there]
    roles = (
        ("quorum", "object server", "container server") if "replicas" in there or "EC:" in topology["system"] else ()
    )
    return Truth(calls=calls, names=named, products=(*products, *roles), http_heads=True)


def _call(line: dict[str, Any]) -> Call:
    client, server = line["conn"].split(">")
    return Call(
        id=f"{line['conn']} {line['nth']}",
        server=server,
        target=line["path"],
        client_port=int(client.rpartition(":")[2]),
        started_ns=line["req_recv_ns"],
        server_ns=line["rsp_send_ns"] - line["req_recv_ns"] if line["rsp_send_ns"] else None,
        status=line["status"] or 0,
        parent="" if line["client"] == CLIENT else None,
    )


def _read(folder: Path, name: str) -> Any:
    plain = folder / name
    if plain.exists():
        return json.loads(plain.read_text("utf-8"))
    with gzip.open(folder / f"{name}.gz", "rt", encoding="utf-8") as file:
        return json.load(file)
