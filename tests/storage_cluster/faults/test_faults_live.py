"""Faults for real: what a client on the cluster sees of each, and that nothing is left when it is cleared."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster.faults import control, log
from storage_cluster.faults.kinds import Fault, Parameters
from storage_cluster.hosts import cluster, state
from tests.helpers.live_cluster import cluster_in, run_on
from tests.helpers.polling import PATIENCE_S
from tests.helpers.system_tools import needs_nft

pytestmark = pytest.mark.live

MS = 1_000_000
SWIFT = str(Path(sys.executable).parent / "swift")
PROBE = """
import json, socket, sys, time
address, port, count, patience = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
said = []
for _ in range(count):
    begin = time.perf_counter_ns()
    try:
        with socket.create_connection((address, port), patience):
            said.append(time.perf_counter_ns() - begin)
    except OSError as error:
        said.append(type(error).__name__)
print(json.dumps(said))
"""

QUEUES = """
from pyroute2 import IPRoute
with IPRoute() as netlink:
    print([queue.get_attr("TCA_KIND") for queue in netlink.get_qdiscs()])
"""
BUSY = """
import sys, time
print("there", flush=True)
sys.stdin.readline()
before, end = time.process_time(), time.monotonic() + 1
while time.monotonic() < end:
    pass
print(time.process_time() - before)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.ClusterStatus]:
    with cluster_in(tmp_path_factory.mktemp("faults") / "cluster") as running:
        yield running


@pytest.fixture
def add(live: cluster.ClusterStatus) -> Iterator:
    """Makes faults that are gone after the test."""
    state_dir = Path(live.state_dir)

    def make(kind: str, target: str, **parameters: object) -> int:
        fault = Fault(kind, target, Parameters(**parameters))  # type: ignore[arg-type]
        return control.ask(state_dir, {"order": "add", "fault": as_document(fault)})[0]

    yield make
    control.ask(state_dir, {"order": "clear", "ids": None})
    assert log.active(state_dir) == ()


def as_document(fault: Fault) -> dict:
    return {"kind": fault.kind, "target": fault.target, "parameters": fault.parameters.given_values()}


def clear(live: cluster.ClusterStatus, *ids: int) -> None:
    control.ask(Path(live.state_dir), {"order": "clear", "ids": list(ids)})


def connects(live: cluster.ClusterStatus, host: str, port: int, count: int = 1, patience_s: float = 5) -> list:
    """Connection times (ns) or names of errors, from the client."""
    address = live.host(host).addresses[0]
    said = run_on(live, "client", sys.executable, "-c", PROBE, address, str(port), str(count), str(patience_s))
    return json.loads(said)


def links(live: cluster.ClusterStatus) -> list[str]:
    """Names of the switch's interfaces."""
    found = state.load(Path(live.state_dir))
    assert found is not None
    lines = Path(f"/proc/{found.switch.holder.pid}/net/dev").read_text("ascii").splitlines()
    return [line.partition(":")[0].strip() for line in lines]


@needs_nft
def test_a_cut_link_carries_nothing_until_it_is_mended(live: cluster.ClusterStatus, add) -> None:
    number = add("cut", "storage2")
    assert connects(live, "storage2", 6200, patience_s=0.3) == ["TimeoutError"]
    clear(live, number)
    assert connects(live, "storage2", 6200)[0] > 0


@needs_nft
def test_a_link_cut_for_one_peer_carries_the_others(live: cluster.ClusterStatus, add) -> None:
    add("cut", "storage2", peer="client")
    assert connects(live, "storage2", 6200, patience_s=0.3) == ["TimeoutError"]
    assert connects(live, "storage3", 6200)[0] > 0


@needs_nft
def test_a_closed_port_refuses_and_the_others_do_not(live: cluster.ClusterStatus, add) -> None:
    add("refuse", "storage2/object")
    assert connects(live, "storage2", 6200) == ["ConnectionRefusedError"]
    assert connects(live, "storage2", 6201)[0] > 0


def test_a_delayed_link_is_late_both_ways_and_whole_again_after(live: cluster.ClusterStatus, add) -> None:
    before = links(live)
    number = add("delay", "storage2", delay_ns=20 * MS)
    times_ns = connects(live, "storage2", 6200, count=5)
    assert 40 * MS <= min(times_ns) < 60 * MS
    clear(live, number)
    assert min(connects(live, "storage2", 6200, count=3)) < 20 * MS
    assert links(live) == before


def test_a_narrow_link_carries_the_rate_set_and_is_wide_again_after(live: cluster.ClusterStatus, add) -> None:
    number = add("bandwidth", "storage2", rate_bits_per_s=1_000_000)
    assert "tbf" in run_on(live, "storage2", sys.executable, "-c", QUEUES)
    assert connects(live, "storage2", 6200)[0] > 0
    clear(live, number)
    assert "tbf" not in run_on(live, "storage2", sys.executable, "-c", QUEUES)


@needs_nft
def test_a_lossy_link_loses_some(live: cluster.ClusterStatus, add) -> None:
    number = add("drop", "storage2", probability=0.5, direction="to")
    assert "TimeoutError" in connects(live, "storage2", 6200, count=12, patience_s=0.05)
    clear(live, number)
    add("drop", "storage2", probability=1.0, direction="to")
    assert connects(live, "storage2", 6200, count=2, patience_s=0.05) == ["TimeoutError"] * 2


def test_a_stopped_server_is_answered_for_by_its_kernel(live: cluster.ClusterStatus, add) -> None:
    add("stop", "storage2/object")
    assert connects(live, "storage2", 6200)[0] > 0
    assert process_state(live, "storage2", "swift-object") == "T"


def test_a_killed_server_is_started_again_when_cleared(live: cluster.ClusterStatus, add) -> None:
    number = add("kill", "storage2/object")
    assert connects(live, "storage2", 6200) == ["ConnectionRefusedError"]
    assert not next(s for s in now(live).host("storage2").services if s.name == "swift-object").alive
    clear(live, number)
    assert connects(live, "storage2", 6200)[0] > 0
    assert next(s for s in now(live).host("storage2").services if s.name == "swift-object").alive


def test_a_short_accept_queue_is_the_kernels(live: cluster.ClusterStatus, add) -> None:
    add("backlog", "storage2/object", backlog_count=1)
    add("stop", "storage2/object")  # so that nobody empties the queue
    assert connects(live, "storage2", 6200, count=4, patience_s=0.3).count("TimeoutError") == 2
    clear(live, *[fault.id for fault in now(live).faults if fault.kind == "backlog"])
    assert connects(live, "storage2", 6200)[0] > 0


def test_a_slow_processor_gets_its_share(live: cluster.ClusterStatus, add) -> None:
    host = live.host("storage3")
    argv = [*host.enter, sys.executable, "-c", BUSY]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guest:
        assert guest.stdout is not None and guest.stdout.readline() == "there\n"
        add("cpu", "storage3", cpu_share=0.2)
        said, _ = guest.communicate("begin\n", PATIENCE_S)
        assert float(said) < 0.6


def test_the_status_shows_clock_errors_and_faults(live: cluster.ClusterStatus, add) -> None:
    number = add("clock", "storage3", offset_ns=-7, drift_ppb=100)
    clock = now(live).host("storage3").clock
    assert clock is not None and (clock.offset_ns, clock.drift_ppb) == (-7, 100)
    assert now(live).host("storage2").clock is None
    assert [(fault.id, fault.kind, fault.target) for fault in now(live).faults] == [(number, "clock", "storage3")]


def now(live: cluster.ClusterStatus) -> cluster.ClusterStatus:
    return cluster.status(Path(live.state_dir))


def process_state(live: cluster.ClusterStatus, host: str, service: str) -> str:
    pid = next(found.pid for found in now(live).host(host).services if found.name == service)
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


def upload(live: cluster.ClusterStatus, folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"x" * 1000)
    run_on(live, "client", SWIFT, "upload", "box", name, directory=folder)


def object_lines(live: cluster.ClusterStatus, name: str) -> list[dict]:
    """What the object servers logged of an object."""
    files = Path(live.state_dir).glob("logs/*/object.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if line["path"].endswith(f"/box/{name}")]


def test_a_full_device_answers_507_and_a_handoff_takes_its_place(
    live: cluster.ClusterStatus, add, tmp_path: Path
) -> None:
    for device in ("d1", "d2"):
        add("full-disk", f"storage2/{device}")
    upload(live, tmp_path, "full")
    lines = [line for line in object_lines(live, "full") if line["method"] == "PUT"]
    puts = [(line["local"].split(":")[0], line["status"]) for line in lines]
    refused = [address for address, status in puts if status == 507]
    assert refused and set(refused) == {live.host("storage2").addresses[0]}
    assert sum(status == 201 for _, status in puts) == 3


def test_a_failing_device_answers_500_and_reading_goes_on_elsewhere(
    live: cluster.ClusterStatus, add, tmp_path: Path
) -> None:
    upload(live, tmp_path, "failing")
    for device in ("d1", "d2"):
        add("bad-disk", f"storage3/{device}")
    for _ in range(4):
        run_on(live, "client", SWIFT, "download", "box", "failing", "-o", "back", directory=tmp_path)
        assert (tmp_path / "back").read_bytes() == b"x" * 1000


def test_a_flipped_bit_is_on_record(live: cluster.ClusterStatus, add, tmp_path: Path) -> None:
    upload(live, tmp_path, "rotten")
    stored = {file: file.read_bytes() for file in Path(live.state_dir).glob("data/storage2/*/objects/*/*/*/*.data")}
    device = next(iter(stored)).parents[4].name
    number = add("bit-rot", f"storage2/{device}")
    changed = [file for file, content in stored.items() if file.read_bytes() != content]
    record = next(record for record in log.read(Path(live.state_dir)) if record.id == number)
    assert len(changed) == 1 and record.detail.endswith(str(changed[0]))
