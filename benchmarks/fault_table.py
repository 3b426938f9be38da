"""How the cluster reacts to each fault, and what the tracer reports: `python -m benchmarks.fault_table`.

Brings up a cluster of its own. For each fault: `tracer record` of a client that uploads six objects of 20 kB (two where
each takes long) and reads four times, while the fault is in force. Prints a Markdown table: what the client saw
(statuses, slowest request), what the object servers logged of the uploads (statuses, how many went to a handoff), and
what the recording's findings say.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from collector.trace.reading import Trace
from storage_cluster import ring as rings
from storage_cluster.faults import control
from storage_cluster.hosts import cluster

TRACER = [sys.executable, "-P", "-m", "tracer"]
FINDINGS_SHOWN = 3
CLIENT = """
import http.client, json, os, sys, time
def ask(place, method, path, body=None, headers={}):
    host, _, port = place.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    begin = time.perf_counter()
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
        found = dict(answer.getheaders())
    except OSError as error:
        status, found = type(error).__name__, {}
    return status, time.perf_counter() - begin, found
file, prefix, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
place = os.environ["ST_AUTH"].split("/")[2]
keys = {"X-Auth-User": os.environ["ST_USER"], "X-Auth-Key": os.environ["ST_KEY"]}
if not os.path.exists(file):
    found = ask(place, "GET", "/auth/v1.0", None, keys)[2]
    json.dump([found["X-Storage-Url"], found["X-Auth-Token"]], open(file, "w"))
url, token = json.load(open(file))
_, _, place, path = url.split("/", 3)
headers = {"X-Auth-Token": token}
ask(place, "PUT", f"/{path}/box", None, headers) if prefix == "first" else None
said = [["PUT", *ask(place, "PUT", f"/{path}/box/{prefix}-{n}", os.urandom(20_000), headers)[:2]] for n in range(count)]
said += [["GET", *ask(place, "GET", f"/{path}/box/first-{n % 6}", None, headers)[:2]] for n in range(4)]
print("SAID " + json.dumps(said))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, as the command line takes it."""

    words: str

    @property
    def name(self) -> str:
        """A name for objects and files."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.words)

    @property
    def uploads(self) -> int:
        """How many; a stopped server costs each of them tens of seconds."""
        return 2 if self.words.startswith("stop") else 6


CASES = tuple(
    Case(words)
    for words in (
        "none",
        "stop storage2/object",
        "stop storage2/container",
        "kill storage2/object",
        "kill storage2",
        "cut storage2",
        "cut storage2 --peer proxy",
        "refuse storage2/object",
        "backlog storage2/object --backlog 0",
        "drop storage2 --probability 5%",
        "delay storage2 --delay 30ms",
        "delay storage2 --delay 10ms --jitter 8ms",
        "reorder storage2 --probability 20%",
        "bandwidth storage2 --rate 2mbit",
        "cpu storage2 --share 1%",
        "clock storage2 --offset 80ms --drift 200ppm",
        "slow-disk storage2/d1",
        "bad-disk storage2/d1",
        "full-disk storage2/d1",
    )
)


def main() -> None:
    """Do all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only faults whose words contain this")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="twintap-table-") as name:
        folder = Path(name)
        os.environ["TWINTAP_CLUSTER_DIR"] = str(folder / "cluster")
        cluster.up(folder / "cluster")
        try:
            _record(folder, Case("first"))
            print("| fault | what the client saw | what the object servers did | what the recording's findings say |")
            print("|---|---|---|---|")
            for case in CASES:
                if only in case.words:
                    print(_row(folder, case), flush=True)
        finally:
            cluster.down(folder / "cluster")


def _row(folder: Path, case: Case) -> str:
    if case.words != "none":
        _tracer("cluster", "fault", "add", *case.words.split())
    said = _record(folder, case)
    control.ask(folder / "cluster", {"order": "clear", "ids": None})
    findings = Trace(str(folder / case.name)).read("findings").to_pylist()
    texts = [finding["text"] for finding in findings if finding["severity"] != "notice"]
    shown = " · ".join(texts[:FINDINGS_SHOWN]) or "nothing"
    if len(texts) > FINDINGS_SHOWN:
        shown += f" · and {len(texts) - FINDINGS_SHOWN} more"
    return f"| `{case.words}` | {_client(said)} | {_servers(folder, case)} | {shown} |"


def _record(folder: Path, case: Case) -> list[tuple[str, int | str, float]]:
    argv = [sys.executable, "-c", CLIENT, str(folder / "token"), case.name, str(case.uploads)]
    said = _tracer("record", "-o", str(folder / case.name), "--", *argv)
    line = next(line for line in said.splitlines() if line.startswith("SAID "))
    return [tuple(entry) for entry in json.loads(line.removeprefix("SAID "))]


def _client(said: list[tuple[str, int | str, float]]) -> str:
    parts = []
    for method in ("PUT", "GET"):
        counts = collections.Counter(status for what, status, _ in said if what == method)
        slowest_s = max(seconds for what, _, seconds in said if what == method)
        statuses = ", ".join(f"{count}× {status}" for status, count in sorted(counts.items(), key=str))
        parts.append(f"{method} {statuses}, slowest {_time(slowest_s)}")
    return "; ".join(parts)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _servers(folder: Path, case: Case) -> str:
    """Statuses of the object servers' PUTs, and how many of the stored copies lie on handoffs."""
    ring = rings.load(folder / "cluster" / "data" / rings.FILE_NAME)["object"]
    counts: collections.Counter[int] = collections.Counter()
    handoffs = 0
    for file in (folder / "cluster").glob("logs/*/object.jsonl"):
        for line in map(json.loads, file.read_text("utf-8").splitlines()):
            device, partition, *names = line["path"].lstrip("/").split("/")
            if line["method"] == "PUT" and names[-1].rsplit("-", 1)[0] == case.name:
                counts[line["status"]] += 1
                primaries = {(found.host, found.name) for found in ring.primaries(int(partition))}
                handoffs += line["status"] == 201 and (file.parent.name, device) not in primaries
    statuses = ", ".join(f"{count}× {status}" for status, count in sorted(counts.items()))
    return statuses + (f"; {handoffs} on handoffs" if handoffs else "")


def _tracer(*words: str) -> str:
    done = subprocess.run([*TRACER, *words], text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"fault_table: `tracer {' '.join(words[:4])} …` failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
