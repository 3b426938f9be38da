"""Nothing that was acknowledged is lost, whatever happens to one host: `python -m benchmarks.faults`.

Brings up a cluster of its own. Clients write, overwrite, delete and read without pause while a schedule (a function of
the seed) damages one host after the other: servers killed, stopped and restarted, links cut, lossy, slow and narrow,
disks full and failing, bits flipped. After each round the clients stand still, the damage is cleared, and the run waits
until all three replicas of every object and all three listings agree with the answers that clients got; then it
continues. Where the topology has storage policies (`--topology storage_cluster/topologies/policies.toml`), each has a
container, and clients write to all of them; in what follows "all three" are then the replicas of the policy. Of
fragments each sufficient set of a version's is decoded.

What is promised, and so checked: with three replicas and damage to at most one host (one zone) at a time, and replicas
converged before the next, every write that was answered with success is there byte for byte on all three devices, every
deletion holds, and every listing has exactly the objects that exist. A write without an answer may be there or not.
While damage lasts, a read may show an older version (the store is eventually consistent) or fail; it must not show what
nobody wrote.

Prints a line for each round and a summary; `--json FILE` keeps it. Exit status 1 if anything was lost.
"""

import argparse
import collections
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.fault_run.clients import Access, Client, S3Access, SwiftAccess, ask
from benchmarks.fault_run.damage import Round, rounds
from benchmarks.fault_run.objects import History
from benchmarks.fault_run.verify import Verifier
from storage_cluster import topology as topologies
from storage_cluster.faults import control
from storage_cluster.hosts import cluster
from storage_cluster.s3.signatures import Credentials
from storage_cluster.topology import Topology

CLIENTS = 6
CONTAINER = "fault-run"


@dataclasses.dataclass
class Summary:
    """The run in figures."""

    seed: int
    seconds: float
    rounds: list[dict[str, object]]
    counts: dict[str, int]
    objects: int
    acknowledged: int
    uncertain: int
    by_container: dict[str, int]
    """Acknowledged ones in each container: one for each storage policy."""
    lost: list[str]
    wrong: list[str]
    not_converged: list[str]

    @property
    def has_passed(self) -> bool:
        """Whether all promises were kept."""
        return not (self.lost or self.wrong or self.not_converged)


def main() -> None:
    """Run, print, exit 0 if nothing was lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster goes down
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--api", choices=("swift", "s3"), default="swift", help="through the proxy, or the S3 gateway")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=None, help="end after so many rounds")
    parser.add_argument("--only", help="only damage whose name contains this")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds that replicas may take to converge")
    parser.add_argument("--topology", type=Path, help="another than the bundled one, with real file systems, say")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--state-dir", type=Path, help=argparse.SUPPRESS)  # given to the part on the client host
    options = parser.parse_args()
    if options.state_dir is not None:
        _on_client_host(options)
        return
    with tempfile.TemporaryDirectory(prefix="twintap-faults-") as folder:
        state_dir = Path(folder, "cluster")
        cluster.up(state_dir, options.topology)
        try:
            running = cluster.status(state_dir)
            argv = [sys.executable, "-m", "benchmarks.faults", *sys.argv[1:], "--state-dir", str(state_dir)]
            enter = running.host(running.client_host).enter
            done = subprocess.run([*enter, *argv], env=os.environ | running.environment, check=False)
        finally:
            cluster.down(state_dir)
    sys.exit(done.returncode)


def _on_client_host(options: argparse.Namespace) -> None:
    summary = Run(options.seed, options.state_dir, options.patience, options.api).run(
        options.minutes * 60, options.rounds, options.only or ""
    )
    print(_text(summary))
    if options.json:
        options.json.write_text(json.dumps(dataclasses.asdict(summary), indent=1), "utf-8")
    sys.exit(0 if summary.has_passed else 1)


_ACKNOWLEDGED = ("PUT 200", "PUT 201", "PARTS 200", "DELETE 204")


@dataclasses.dataclass
class Share:
    """One container, those who write to it, and who reads its replicas."""

    verifier: Verifier
    container: str
    clients: list[Client] = dataclasses.field(default_factory=list)

    @property
    def histories(self) -> list[History]:
        """What became of each of its objects."""
        return [history for client in self.clients for history in client.histories]

    @property
    def acknowledged_count(self) -> int:
        """Writes and deletions that were acknowledged."""
        return sum(client.counts[what] for client in self.clients for what in _ACKNOWLEDGED)


class Run:
    """Clients, damage, and the judge."""

    def __init__(self, seed: int, state_dir: Path, patience_s: float, api: str) -> None:
        self._seed = seed
        self._patience_s = patience_s
        self._state_dir = state_dir
        self._topology = topologies.load(state_dir / "topology.toml")
        front = self._topology.proxies if api == "swift" else self._topology.gateways
        self._front_host = front[0].host
        self._access = _log_in() if api == "swift" else _s3_access(self._topology)
        in_parts = self._access.write_in_parts if isinstance(self._access, S3Access) else None
        self._shares = [
            Share(self._verifier_of(container, policy), container)
            for container, policy in self._make_containers().items()
        ]
        for number in range(max(CLIENTS, len(self._shares))):
            share = self._shares[number % len(self._shares)]
            share.clients.append(Client(self._access, share.container, number, seed, in_parts))
        self._clients = [client for share in self._shares for client in share.clients]
        self._rounds: list[dict[str, object]] = []
        self._not_converged: list[str] = []

    def _make_containers(self) -> dict[str, int]:
        """A container for each storage policy that one may have (of S3 one in all), and the policy's index."""
        if not isinstance(self._access, SwiftAccess):
            assert self._access.ask("PUT", f"/{CONTAINER}").status in (200, 201, 202)
            return {CONTAINER: self._topology.policies.default.index}
        made = {}
        for policy in self._topology.policies:
            if not policy.deprecated:
                name = f"{CONTAINER}-{policy.index}"
                assert self._access.make_container(name, policy.name).status in (201, 202)
                made[name] = policy.index
        return made

    def _verifier_of(self, container: str, policy: int) -> Verifier:
        account = f"AUTH_{self._topology.users[0].account}"
        return Verifier(self._topology, self._state_dir, account, container, policy)

    def run(self, seconds: float, round_limit: int | None, only: str) -> Summary:
        """All rounds, then the last judgement."""
        begin_s = time.monotonic()
        for client in self._clients:
            client.start()
        storage_hosts = [host.name for host in self._topology.hosts if host.devices]
        for number, planned in enumerate(
            planned for planned in rounds(self._seed, storage_hosts, self._front_host) if only in planned.name
        ):
            if time.monotonic() - begin_s > seconds or number == round_limit or self._not_converged:
                break
            self._round(planned)
        for client in self._clients:
            client.ending = True
        return self._summary(time.monotonic() - begin_s)

    def _round(self, planned: Round) -> None:
        before = self._counts()
        for client in self._clients:
            client.gate.set()
        time.sleep(0.5)
        for fault in planned.faults:
            control.ask(self._state_dir, {"order": "add", "fault": dataclasses.asdict(fault)})
        time.sleep(planned.hold_s)
        control.ask(self._state_dir, {"order": "clear", "ids": None})
        self._stand_still()
        seen = self._counts() - before
        took_s, left = 0.0, []
        for share in self._shares:
            share_s, share_left = share.verifier.settle(share.histories, self._patience_s)
            took_s, left = took_s + share_s, left + share_left
        self._not_converged += left
        self._rounds.append(
            {
                "name": planned.name,
                "host": planned.host,
                "hold_s": round(planned.hold_s, 1),
                "settled_s": round(took_s, 1),
                "seen": dict(seen),
            }
        )
        failed = {
            what: count for what, count in seen.items() if what.startswith(("PUT", "DELETE")) and " 20" not in what
        }
        state = "ok" if not left else f"{len(left)} NOT CONVERGED"
        print(
            f"{len(self._rounds):>3}  {planned.name:<30} {planned.host:<9} held {planned.hold_s:3.1f} s, "
            f"settled in {took_s:5.1f} s  {len(self._histories)} objects  {state}  "
            + ", ".join(f"{count}× {what}" for what, count in sorted(failed.items())),
            flush=True,
        )

    @property
    def _histories(self) -> list[History]:
        return [history for client in self._clients for history in client.histories]

    def _counts(self) -> collections.Counter[str]:
        return sum((client.counts for client in self._clients), collections.Counter())

    def _stand_still(self) -> None:
        for client in self._clients:
            client.gate.clear()
        for client in self._clients:
            client.stands.wait()

    def _unreadable(self) -> list[str]:
        """Objects of multipart uploads that cannot be read back whole, now that all is repaired."""
        found = []
        for history in self._histories:
            if history.acknowledged not in history.in_parts or history.is_retired:
                continue
            answer = self._access.ask("GET", f"/{CONTAINER}/{history.name}")  # of S3, so of the one container
            assert history.acknowledged is not None
            if answer.body != history.body(history.acknowledged):
                found.append(f"{history.name}: {answer.status or answer.error}, not the bytes of its upload")
        return found

    def _summary(self, seconds: float) -> Summary:
        counts = self._counts()
        histories = self._histories
        return Summary(
            seed=self._seed,
            seconds=round(seconds, 1),
            rounds=self._rounds,
            counts=dict(sorted(counts.items())),
            objects=len(histories),
            acknowledged=sum(share.acknowledged_count for share in self._shares),
            uncertain=sum(history.is_retired for history in histories),
            by_container={share.container: share.acknowledged_count for share in self._shares},
            lost=[
                f"{share.container}/{history.name}"
                for share in self._shares
                for history in share.histories
                if share.verifier.is_lost(history)
            ],
            wrong=[line for client in self._clients for line in client.wrong] + self._unreadable(),
            not_converged=self._not_converged,
        )


def _s3_access(topology: Topology) -> Access:
    gateway, user = topology.gateways[0], topology.users[0]
    return S3Access(gateway.address, gateway.port, Credentials(f"{user.account}:{user.name}", user.key))


def _log_in() -> Access:
    host, _, port = os.environ["ST_AUTH"].split("/")[2].partition(":")
    headers = {"X-Auth-User": os.environ["ST_USER"], "X-Auth-Key": os.environ["ST_KEY"]}
    answer = ask(host, int(port), "GET", "/auth/v1.0", headers=headers)
    assert answer.status == 200, answer
    _, _, place, path = answer.headers["x-storage-url"].split("/", 3)
    address, _, proxy_port = place.partition(":")
    return SwiftAccess(address, int(proxy_port), f"/{path}", answer.headers["x-auth-token"])


def _text(summary: Summary) -> str:
    lines = [f"seed {summary.seed}, {summary.seconds:.0f} s, {len(summary.rounds)} rounds of damage, {CLIENTS} clients"]
    lines += [f"  {count:>6}  {what}" for what, count in summary.counts.items()]
    lines.append(
        f"{summary.objects} objects, {summary.acknowledged} acknowledged writes and deletions, "
        f"{summary.uncertain} without an answer"
    )
    if len(summary.by_container) > 1:
        lines.append(", ".join(f"{count} in {container}" for container, count in summary.by_container.items()))
    for what, found in (
        ("LOST", summary.lost),
        ("WRONG", summary.wrong),
        ("NOT CONVERGED", summary.not_converged),
    ):
        lines.append(f"{what.lower() if not found else what}: {len(found)}")
        lines += [f"  {line}" for line in found[:10]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
