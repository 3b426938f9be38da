"""S3: a known list of operations, by boto3 and others, on our gateway and on Ceph's RADOS Gateway.

Truth: what boto3 says that it did, with the ids of the answers (`benchmarks.real_systems.s3_client`).
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.real_systems.capturing import AGENT, TCPDUMP, agent, running, tcpdump
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.said import Said
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Truth
from benchmarks.real_systems.verdict import Verdict
from testkit.s3_stores import ACCESS_KEY, SECRET_KEY

PORT = 8_000
BUFFER_KIB = "65536"
NAME = ("operation", "bucket", "object_key", "part")
Line = Mapping[str, Any]


class S3Operations(Scenario):
    """Some 60 requests: buckets, objects, uploads in parts, and their settings."""

    hosts = addresses(client="10.68.0.10", store="10.68.0.20")
    kind: ClassVar[str]
    keys: ClassVar[tuple[str, str]]

    def start(self, lab: Lab) -> None:
        (lab.folder / "store").mkdir()
        words = ("-m", "benchmarks.real_systems.s3_server", self.kind, str(lab.folder / "store"), lab.address("store"))
        lab.start("store", sys.executable, *words, str(PORT), port=PORT, name="store")

    def traffic(self, lab: Lab) -> Truth:
        url = f"http://{lab.address('store')}:{PORT}"
        lab.file("client.log", lab.python("client", "s3_client", url, *self.keys, str(lab.folder)))
        return Truth(only=("packets lost",))

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        """With a larger buffer for tcpdump: with its 2 MiB it drops heads, since parts come faster than it writes."""
        hosts = [lab.hosts[name] for name in self.hosts]
        return running(
            *(tcpdump(host, folder / TCPDUMP, "", "-B", BUFFER_KIB) for host in hosts),
            *(agent(host, folder / AGENT) for host in hosts),
        )

    def judge(self, said: Said, truth: Truth) -> list[Verdict]:
        log = (said.trace.parent.parent / "lab" / "client.log").read_text("utf-8")
        lines = [json.loads(line) for line in log.splitlines()]
        return [*_judge(lines, said.exchanges.to_dicts())]


@scenario
class OurGateway(S3Operations):
    """Our own."""

    name = "s3-gateway"
    words = "the bundled S3 gateway; boto3, s3cmd, rclone: operations by name, uploads in parts"
    kind = "ours"
    keys = ("test:tester", "testing")


@scenario
class RadosGateway(S3Operations):
    """Ceph's."""

    name = "s3-rgw"
    words = "Ceph's RADOS Gateway; boto3, s3cmd, rclone: operations by name, uploads in parts"
    needs = (("radosgw", "radosgw"), ("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd"))
    kind = "rgw"
    keys = (ACCESS_KEY, SECRET_KEY)


def _judge(lines: Sequence[Line], rows: Sequence[Line]) -> Iterator[Verdict]:
    known = {line["id"]: line for line in lines if line["id"]}
    said = {row["transaction_id"]: row for row in rows if row["transaction_id"] in known}
    yield Verdict("answers by their ids", str(len(known)), str(len(said)), len(known) == len(said))
    for column in NAME:
        yield _compare(column, known, said)
    yield _compare("upload", known, said)
    yield from _others(lines, [row for row in rows if row["transaction_id"] not in known])
    unnamed = [f"{row['method']} {row['target']}" for row in rows if not row["operation"]]
    yield Verdict("requests without a name", "0", "; ".join(unnamed[:3]) or "0", not unnamed)


def _compare(column: str, known: Mapping[str, Line], said: Mapping[str, Line]) -> Verdict:
    pairs = [(line[column], said[id_][column]) for id_, line in known.items() if id_ in said]
    wrong = [f"{said} for {true}" for true, said in pairs if true != said]
    many = len({true for true, _ in pairs if true is not None})
    return Verdict(
        f"{column} of {len(pairs)} requests",
        f"{many} different",
        "; ".join(wrong[:3]) or f"{many} different",
        not wrong,
    )


def _others(lines: Sequence[Line], rows: Sequence[Line]) -> Iterator[Verdict]:
    """Of clients without a log: the requests of each upload, which all have one id."""
    for client in sorted({line["upload"] for line in lines if not line["id"]}):
        true = Counter(tuple(line[name] for name in NAME) for line in lines if line["upload"] == client)
        key = next(line["object_key"] for line in lines if line["upload"] == client)
        mine = [row for row in rows if row["object_key"] == key and row["upload"]]
        found = Counter(tuple(row[name] for name in NAME) for row in mine)
        uploads = {row["upload"] for row in mine}
        words = f"{found.total()} of {len(uploads)} upload"
        yield Verdict(
            f"requests of {client}'s upload", f"{true.total()} of 1 upload", words, found == true and len(uploads) == 1
        )
