"""OpenStack Swift at 32 requests at once, with captures that were cut behind the request line: no transaction ids.

Truth: Swift's own access logs, which have the ids.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.real_systems import logs
from benchmarks.real_systems.capturing import AGENT, TCPDUMP, agent, running, tcpdump
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import scenario
from benchmarks.real_systems.systems.swift import Swift
from benchmarks.real_systems.truth import Truth

HEADERS_LEN = 66
"""Of Ethernet, IP and TCP with timestamps."""
SNAPLEN = 128
"""A request line such as "PUT /d1/123/AUTH_judge/judge/w12-3 HTTP/1.1" and little else."""
MIXED = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from swiftclient.client import Connection
def answer_and_time(of, *words):
    began, answer = time.time_ns(), {}
    found = of("judge", *words, response_dict=answer) if of.__name__ == "put_object" else of("judge", *words)
    took = time.time_ns() - began
    headers = answer.get("headers") or (found[0] if isinstance(found, tuple) else found)
    os.write(1, (json.dumps(dict(tx=headers["x-trans-id"], took_ns=took)) + chr(10)).encode())
def send_requests(worker):
    connection = Connection(preauthurl=url, preauthtoken=token, retries=0)
    for n in range(int(sys.argv[4])):
        name = f"w{worker}-{n}"
        answer_and_time(connection.put_object, name, b"x" * 1000)
        answer_and_time(connection.get_object, name)
        answer_and_time(connection.head_object, name)
url, token = Connection(authurl=sys.argv[1], user=sys.argv[2], key=sys.argv[3], auth_version="1").get_auth()
with ThreadPoolExecutor(32) as pool:
    list(pool.map(send_requests, range(32)))
"""


@scenario
class SwiftIdsCut(Swift):
    """32 clients, each 4 objects put, got and asked for."""

    name = "swift-ids-cut"
    words = "the same at 32 at once; captures cut behind the request line, so without transaction ids"
    count = 4

    def load(self, lab: Lab, count: int) -> None:
        if count == self.count:
            lab.file("client.log", self.client(lab, MIXED, count))
        else:
            super().load(lab, count)

    def traffic(self, lab: Lab) -> Truth:
        truth = super().traffic(lab)
        took = {line["tx"]: line["took_ns"] for line in logs.lines_of(lab.folder / "client.log")}
        for call in truth.calls:
            call.client_ns = took.get(call.id)
            if call.parent == "" and call.client_ns is None:
                call.server_ns = None  # the login: the proxy begins to log late, no other log has it
        return truth

    def capturing(self, lab: Lab, folder: Path) -> AbstractContextManager[None]:
        return self._cut(lab, folder)

    @contextmanager
    def _cut(self, lab: Lab, folder: Path) -> Iterator[None]:
        hosts = [lab.hosts[name] for name in self.hosts]
        cut = [tcpdump(host, folder / TCPDUMP, "", "-s", str(SNAPLEN)) for host in hosts]
        ours = [agent(host, folder / AGENT, "--payload", str(SNAPLEN - HEADERS_LEN)) for host in hosts]
        with running(*cut, *ours):
            yield
