"""A cache asked by one client, whose own times are the truth: how many commands, how long each took, its name, its
error.
"""

import json
from collections import Counter
from collections.abc import Mapping

from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses
from benchmarks.real_systems.truth import Call, Truth
from benchmarks.real_systems.verdict import Verdict

NAMED, FAILED, BARE = "named ", "error ", "without an answer"


class CacheByDriver(Scenario):
    """Commands of `benchmarks.real_systems.cache_client`."""

    hosts: Mapping[str, str] = addresses(client="10.68.0.10", cache="10.68.0.20")
    kind: str
    port: int

    @property
    def client(self) -> tuple[str, ...]:
        """The module of the client, and its first words."""
        return "cache_client", self.kind

    def traffic(self, lab: Lab) -> Truth:
        address = lab.address("cache")
        server = f"{address}:{self.port}"
        said = lab.python("client", *self.client, address, str(self.port))
        lines = [json.loads(line) for line in said.splitlines()]
        answered = [line for line in lines if line["ended_ns"] is not None]
        more = Counter(NAMED + line["name"] for line in answered)
        more.update(FAILED + line["error"] for line in answered if line["error"])
        more[BARE] = len(lines) - len(answered)
        calls = [_call(line, server) for line in answered]
        return Truth(calls=calls, names={server: rf"{self.kind}|cache:{self.port}"}, more=dict(more))

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        """Names, errors, and commands without an answer."""
        rows = said.exchanges.iter_rows(named=True)
        found = Counter(NAMED + " ".join(filter(None, (row["method"], row["target"]))) for row in rows)
        found.update(FAILED + word for word in said.exchanges["result"].drop_nulls())
        streams = said.table("exchanges").filter("is_stream")
        found[BARE] = len(streams)
        return [
            Verdict(f"requests {name}", str(truth.more.get(name, 0)), str(count), truth.more.get(name, 0) == count)
            for name, count in sorted((dict.fromkeys(truth.more, 0) | dict(found)).items())
        ]


def _call(line: dict[str, int | str], server: str) -> Call:
    began, ended = int(line["began_ns"]), int(line["ended_ns"])
    return Call(
        f"client {line['n']}",
        server,
        client_port=int(line["port"]),
        started_ns=began,
        client_ns=ended - began,
        parent="",
    )
