"""Hosts for real: namespaces, links that split packets, the `swift` command, and nothing left behind.

Runs as whoever runs the tests: root, or an ordinary user where the kernel lets one make namespaces.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import topology
from storage_cluster.errors import MissingResourceError, NotPermittedError, NotRunningError
from storage_cluster.hosts import cluster, namespaces, network, state
from storage_cluster.hosts.offload import get_offload
from tests.helpers.live_cluster import cluster_in, run_on, small_topology
from tests.helpers.polling import PATIENCE_S, wait_for

pytestmark = pytest.mark.live

MSS = 1448
SWIFT = str(Path(sys.executable).parent / "swift")

WORKLOAD = """
name = "ordered"
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "c(1)"
container_prefix = "ordered"
[[stage]]
name = "main"
[[stage.work]]
kind = "prepare"
containers = "c(1)"
objects = "r(1,3)"
sizes = "c(9)B"
container_prefix = "ordered"
"""

SNIFFER = """
import json, select, socket, struct, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.bind(("eth0", 0))
for option in (socket.SO_RCVBUF, 33):  # 33: SO_RCVBUFFORCE, for root
    try:
        tap.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
    except PermissionError:
        pass
print("ready", flush=True)
seen = []
while tap in (readable := select.select([tap, sys.stdin], [], [])[0]) or not readable:
    packet, address = tap.recvfrom(1 << 17)
    if packet[12:14] == b"\\x08\\x00" and packet[23] == 6:
        ip_len = (packet[14] & 15) * 4
        source, target, seq = struct.unpack_from("!HHI", packet, 14 + ip_len)
        payload_len = len(packet) - 14 - ip_len - (packet[26 + ip_len] >> 4) * 4
        if target == 8080 and payload_len and len(packet) > 60:
            seen.append((source, seq, payload_len))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.ClusterStatus]:
    with cluster_in(tmp_path_factory.mktemp("live") / "cluster") as running:
        yield running


def processes_of(state_dir: Path) -> list[str]:
    """Command lines of all processes that name the state directory."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [line for line in lines if str(state_dir) in line]


def await_no_process_of(state_dir: Path) -> None:
    wait_for(lambda: not processes_of(state_dir), lambda: f"the end of {processes_of(state_dir)}")


def test_the_swift_command_goes_there_and_back(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    (tmp_path / "picture.jpg").write_bytes(os.urandom(300_000))
    (tmp_path / "note é.txt").write_text("hello")
    swift = lambda *words: run_on(live, "client", SWIFT, *words, directory=tmp_path)  # noqa: E731
    assert swift("upload", "photos", "picture.jpg", "note é.txt").split("\n")[:2]
    assert swift("list") == "photos\n"
    assert swift("list", "photos") == "note é.txt\npicture.jpg\n"
    swift("download", "photos", "picture.jpg", "-o", "back.jpg")
    assert (tmp_path / "back.jpg").read_bytes() == (tmp_path / "picture.jpg").read_bytes()
    swift("post", "-m", "Colour:blue", "photos", "picture.jpg")
    assert "Meta Colour: blue" in swift("stat", "photos", "picture.jpg")
    swift("delete", "photos")
    assert swift("list") == ""


def test_hosts_have_their_names_and_addresses(live: cluster.ClusterStatus) -> None:
    assert [host.host for host in live.hosts] == ["client", "proxy", "gateway", "storage1", "storage2", "storage3"]
    for host in live.hosts:
        assert run_on(live, host.host, "hostname") == f"{host.host}\n"
        assert host.addresses[0] in run_on(live, host.host, "cat", "/proc/net/fib_trie")
        assert all(service.alive for service in host.services)
        script = "from storage_cluster.hosts.offload import get_offload; print(get_offload('eth0'))"
        assert run_on(live, host.host, sys.executable, "-c", script) == "{'tso': True, 'gso': True, 'gro': True}\n"


def test_the_machine_outside_is_left_alone(live: cluster.ClusterStatus) -> None:
    outside = Path("/proc/net/dev").read_text() + Path("/proc/net/fib_trie").read_text()
    for name in (network.BRIDGE, "storage1", "10.77.0."):
        assert name not in outside


Segments = set[tuple[int, int, int]]
"""Of data segments to the proxy: the client's port, the sequence number, the bytes of payload."""


def sniffed_upload(live: cluster.ClusterStatus, directory: Path) -> tuple[Segments, Segments]:
    """The segments of an upload of the file `big`, as the client sent them and as the proxy received them."""
    sniffers = [
        subprocess.Popen(
            [*live.host(host).enter, sys.executable, "-c", SNIFFER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in ("client", "proxy")
    ]
    for sniffer in sniffers:
        assert sniffer.stdout is not None and sniffer.stdout.readline() == "ready\n"
    run_on(live, "client", SWIFT, "upload", "box", "big", directory=directory)
    sent, received = (
        {tuple(row) for row in json.loads(sniffer.communicate("x", PATIENCE_S)[0])} for sniffer in sniffers
    )
    return sent, received


def starts_within(received: Segments, sent: Segments) -> bool:
    """Whether a received segment begins within one that was sent: the network split what the sender wrote."""
    return any(
        port == sent_port and first < seq < first + length
        for port, seq, _ in received
        for sent_port, first, length in sent
    )


def test_sender_and_receiver_cut_the_stream_differently(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(8_000_000))
    for _ in range(5):  # sniffers miss packets on a busy machine, and on an idle one the receiver may merge all again
        sent, received = sniffed_upload(live, tmp_path)
        sent_lengths, received_lengths = ([length for *_, length in segments] for segments in (sent, received))
        assert max(sent_lengths) > 2 * MSS, "the sender should show super-segments"
        enough = min(sum(sent_lengths), sum(received_lengths)) > 1_000_000
        if enough and max(received_lengths) > MSS and starts_within(received, sent):
            return
    pytest.fail("in 5 uploads, no segment arrived merged and none began within one that was sent")


def test_up_again_changes_nothing(live: cluster.ClusterStatus) -> None:
    assert not cluster.up(Path(live.state_dir))
    assert cluster.status(Path(live.state_dir)) == live


def test_every_request_is_in_the_logs(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    (tmp_path / "logged").write_bytes(b"x")
    run_on(live, "client", SWIFT, "upload", "box", "logged", directory=tmp_path)
    lines = [
        json.loads(line)
        for file in Path(live.state_dir).glob("logs/*/object.jsonl")
        for line in file.read_text("utf-8").splitlines()
    ]
    puts = [line for line in lines if line["method"] == "PUT" and line["path"].endswith("/box/logged")]
    assert len(puts) == 3
    assert len({line["transaction_id"] for line in puts}) == 1
    assert {line["peer"].split(":")[0] for line in puts} == {live.host("proxy").addresses[0]}


def test_a_driver_on_the_client_host_takes_orders_from_outside(live: cluster.ClusterStatus, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WORKLOAD)
    environment = os.environ | {"TWINTAP_CLUSTER_DIR": live.state_dir}
    bench = (sys.executable, "-m", "tracer", "bench")
    driving = (*bench, "driver", "--cluster", "--name", "d1", "--listen", "127.0.0.1:0")
    with _serving(driving, environment, tmp_path) as driver:
        controlling = (*bench, "controller", "--driver", driver, "--listen", "127.0.0.1:0")
        with _serving(controlling, environment, tmp_path) as controller:
            wait_for(lambda: " answers" in _output(*bench, "status", controller), "the driver")
            assert "4 operations" in _output(*bench, "submit", controller, str(tmp_path / "w.toml"), "--wait")
    assert run_on(live, "client", SWIFT, "list", "ordered1").split() == ["myobjects_1", "myobjects_2", "myobjects_3"]


@contextlib.contextmanager
def _serving(argv: tuple[str, ...], environment: dict[str, str], folder: Path) -> Iterator[str]:
    """A service while the context lasts; yields the address that it prints."""
    with subprocess.Popen(argv, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        try:
            line = running.stdout.readline()
            yield next(word for word in line.split() if word.startswith("http://")).rstrip("/")
        finally:
            running.terminate()


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def test_down_leaves_nothing_not_even_a_guest(tmp_path: Path) -> None:
    state_dir = tmp_path / "cluster"
    with cluster_in(state_dir, small_topology(tmp_path)) as running:
        guest = subprocess.Popen([*running.host("client").enter, "sleep", "1000"])
        inodes = {host.net_inode for host in running.hosts}
        wait_for(lambda: namespaces.inode(guest.pid, "net") in inodes, "the guest to come in")
        assert cluster.down(state_dir)
        assert guest.wait(PATIENCE_S) != 0
    assert not state_dir.exists()
    assert processes_of(state_dir) == []
    assert state.processes_inside(inodes) == []
    assert not cluster.down(state_dir)


def test_a_killed_keeper_takes_all_with_it_and_the_next_up_finds_its_way(tmp_path: Path) -> None:
    state_dir, file = tmp_path / "cluster", small_topology(tmp_path)
    with cluster_in(state_dir, file) as running:
        found = state.load(state_dir)
        assert found is not None
        os.kill(found.keeper.pid, signal.SIGKILL)
        everyone = [host.holder for host in found.hosts] + [server.process for server in found.servers]
        wait_for(lambda: not any(process.alive for process in everyone), "what outlived the keeper to end")
        with pytest.raises(NotRunningError):
            cluster.status(state_dir)
        assert cluster.up(state_dir, file)
        assert cluster.status(state_dir).hosts[0].net_inode
        assert running.running


def test_a_start_that_fails_half_way_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    state_dir, file = tmp_path / "cluster", tmp_path / "broken.toml"
    file.write_text(topology.BUNDLED_FILE.read_text("utf-8").replace("proxy = 8080", "proxy = 808080"), "utf-8")
    try:
        with pytest.raises(MissingResourceError, match=r"proxy server on proxy did not start \(.*port"):
            cluster.up(state_dir, file)
    except NotPermittedError as error:
        pytest.skip(f"NOT TESTED, no cluster can be made here: {error}")
    await_no_process_of(state_dir)
    with pytest.raises(NotRunningError):
        cluster.status(state_dir)


def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    state_dir = tmp_path / "cluster"
    start = f"import pathlib; from storage_cluster.hosts import cluster; cluster.up(pathlib.Path({str(state_dir)!r}))"
    starting = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE, text=True)
    while not (state_dir / "keeper.log").exists() and starting.poll() is None:
        time.sleep(0.01)
    starting.send_signal(signal.SIGINT)
    _, said = starting.communicate(timeout=60)
    if "NotPermittedError" in said:
        pytest.skip(f"NOT TESTED, no cluster can be made here: {said.splitlines()[-1]}")
    assert "KeyboardInterrupt" in said
    await_no_process_of(state_dir)
    assert not (state_dir / "topology.toml").exists()


@pytest.mark.parametrize(
    ("limit", "rights"),
    [
        ("user/max_net_namespaces", []),
        ("user/max_user_namespaces", ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]),
    ],
)
def test_where_the_kernel_refuses_it_says_what_forbids_it(tmp_path: Path, limit: str, rights: list[str]) -> None:
    state_dir = tmp_path / "cluster"
    start = f"import pathlib; from storage_cluster.hosts import cluster; cluster.up(pathlib.Path({str(state_dir)!r}))"
    script = f'echo 0 > /proc/sys/{limit} || exit 77; exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *rights, sys.executable, "-c", start],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77 or done.stderr.startswith("unshare"):
        pytest.skip(f"NOT TESTED, no user namespace to forbid this in: {done.stderr.strip()}")
    assert f"NotPermittedError: the kernel refuses network namespaces ({limit.replace('/', '.')} = 0" in done.stderr
    assert not state_dir.exists()


def test_offload_reads_what_the_kernel_has() -> None:
    assert get_offload("lo").keys() == {"tso", "gso", "gro"}
    with pytest.raises(OSError, match="No such device"):
        get_offload("nosuch0")


def test_a_recycled_pid_is_not_taken_for_ours() -> None:
    me = state.ProcessId.of(os.getpid())
    assert me.alive
    assert not dataclasses.replace(me, start_ticks=me.start_ticks + 1).alive
    state.end([dataclasses.replace(me, start_ticks=me.start_ticks + 1)], 1.0)  # would end this test


def test_an_unreadable_state_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / state.STATE_FILE).write_text('{"keeper": 7', "utf-8")
    assert state.load(tmp_path) is None
    (tmp_path / state.STATE_FILE).write_text('{"keeper": {"pid": 7}}', "utf-8")
    assert state.load(tmp_path) is None
