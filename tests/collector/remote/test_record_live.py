"""`tracer record --ssh` against real sshds in namespaces: what is recorded, what is said, and what is left behind.

Needs root, and says so where it is not.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.decode.sources import host_sources
from testkit.ssh_hosts import CLIENT, SERVER, SshHosts, missing_parts, process, ssh_hosts

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(missing_parts()), reason=f"NOT TESTED, no hosts can be made here: {missing_parts()}"),
]
TRACER = (sys.executable, "-P", "-m", "tracer")
HOSTS = "web1,api1,db1"
SECONDS = 60
LEFT = ("/dev/shm", "/tmp", "/var/tmp", str(Path.home()))
"""Where the agent is received."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with (
        ssh_hosts(tmp_path_factory.mktemp("hosts")) as made,
        process(made.hosts["db1"], [sys.executable, "-c", SERVER]),
    ):
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(lab: SshHosts) -> Iterator[None]:
    yield
    _wait_until(lambda: _remote_processes(lab) == [], "processes are left on the hosts")
    left = [path for folder in LEFT for path in Path(folder).glob(".twintap-*") if "scratch" not in path.name]
    assert left == []


def _remote_processes(lab: SshHosts) -> list[str]:
    """Agents and tcpdumps in the hosts' namespaces."""
    spaces = {os.readlink(f"/proc/{host.holder}/ns/net") for host in lab.hosts.values()}
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and os.readlink(folder / "ns" / "net") in spaces:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [words] if "--interface" in words or "tcpdump" in words or "read -r" in words else []
        except OSError:
            continue
    return found


def _wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    due = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < due, otherwise
        time.sleep(0.05)


def _argv(lab: SshHosts, *words: str) -> list[str]:
    return [*lab.laptop.enter, *TRACER, "record", "--ssh-config", str(lab.config), "--quiet", *words]


def _run(lab: SshHosts, folder: Path, *words: str, environment: dict[str, str] | None = None):
    return subprocess.run(
        _argv(lab, "-o", str(folder / "t"), *words),
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@contextmanager
def _recording(lab: SshHosts, folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A recording without a command, from when it records; its lines so far. It is waited for at the end."""
    argv = _argv(lab, "-o", str(folder / "t"), *words)
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    lines: list[str] = []
    try:
        for line in running.stderr:
            lines.append(line.removeprefix("tracer: ").rstrip())
            if "Ctrl-C ends it" in line:
                break
        assert lines and "Ctrl-C ends it" in lines[-1], lines
        yield running, lines
        lines += [line.removeprefix("tracer: ").rstrip() for line in running.stderr]
        running.wait(SECONDS)
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


def _requests(lab: SshHosts, count: int = 30, pause: float = 0.02) -> list[str]:
    """A command that sends so many requests from web1 to db1."""
    return [*lab.hosts["web1"].enter, sys.executable, "-c", CLIENT, lab.hosts["db1"].address, str(count), str(pause)]


def _hosts(folder: Path) -> dict[str, int]:
    """Packets by host, in the trace."""
    info = json.loads((folder / "t" / "trace.json").read_text())
    return {host["host"]: host["packets_count"] for host in info["hosts"]}


@contextmanager
def _tcpdump_beside(lab: SshHosts, host: str, file: Path) -> Iterator[None]:
    """tcpdump of our own on a host, of port 8080."""
    argv = [*lab.hosts[host].enter, "tcpdump", "-i", "eth0", "-U", "--immediate-mode", "-w", str(file), "port", "8080"]
    running = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while "listening on" not in running.stderr.readline():
        assert running.poll() is None
    yield
    time.sleep(0.5)  # what it has not read when it ends it forgets
    running.terminate()
    running.communicate(timeout=SECONDS)


def _packets_count(file: Path) -> int:
    printed = subprocess.run(["tcpdump", "-nr", str(file)], capture_output=True, text=True, check=True).stdout
    return len(printed.splitlines())


@pytest.mark.parametrize("method", ["agent", "tcpdump"])
def test_every_packet_but_our_own_is_in_the_trace(lab: SshHosts, tmp_path: Path, method: str) -> None:
    with _tcpdump_beside(lab, "web1", tmp_path / "web1.pcap"), _tcpdump_beside(lab, "db1", tmp_path / "db1.pcap"):
        done = _run(lab, tmp_path, "--ssh", HOSTS, "--with", method, "--", *_requests(lab))
    assert done.returncode == 0, done.stderr
    assert f"web1: {'agent sent along' if method == 'agent' else 'tcpdump'} on eth0" in done.stderr
    counts = [_packets_count(tmp_path / f"{host}.pcap") for host in ("web1", "db1")]
    assert counts[0] > 60
    assert _hosts(tmp_path) == {"web1": counts[0], "api1": 0, "db1": counts[1]}
    assert "Requests  30" in done.stdout
    assert f"page: tracer view {tmp_path}/t" in done.stdout
    stored = b"".join(path.read_bytes() for path in (tmp_path / "t.captures").rglob("*") if path.is_file())
    assert b"GET /29" in stored
    assert b"SECRET" not in stored


def test_the_status_is_the_commands_and_its_output_is_its_own(lab: SshHosts, tmp_path: Path) -> None:
    script = f"echo out; {' '.join(lab.hosts['web1'].enter)} bash -c ': </dev/tcp/10.88.0.13/8080'; exit 7"
    done = _run(lab, tmp_path, "--ssh", "web1", "--", "sh", "-c", script)
    assert done.returncode == 7
    assert done.stdout.startswith("out\n")


def test_until_ctrl_c_without_a_command(lab: SshHosts, tmp_path: Path) -> None:
    with _recording(lab, tmp_path, "--ssh", "web1,db1") as (running, lines):
        subprocess.run(_requests(lab, 5), check=True)
        running.send_signal(signal.SIGINT)
    assert running.returncode == 0, lines
    assert _hosts(tmp_path)["web1"] == _hosts(tmp_path)["db1"] > 10


@pytest.mark.parametrize("way", ["kubectl", "docker", "nsenter"])
def test_other_ways_are_prefixes(lab: SshHosts, tmp_path: Path, way: str) -> None:
    """kubectl and docker are stand-ins that enter the namespace and run what follows their own words."""
    enter = " ".join(lab.hosts["web1"].enter)
    for name, words in (("kubectl", 'while [ "$1" != -- ]; do shift; done; shift'), ("docker", "shift 4")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\n{words}\nexec {enter} "$@"\n')
        script.chmod(0o755)
    target = {"kubectl": "shop/cart", "docker": "cart", "nsenter": f"cart={lab.hosts['web1'].holder}"}[way]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["--", *_requests(lab, 5)]
    done = _run(lab, tmp_path, f"--{way}", target, "--ssh", "db1", *command, environment=environment)
    assert done.returncode == 0, done.stderr
    assert _hosts(tmp_path)["cart"] == _hosts(tmp_path)["db1"] > 10


def test_a_host_that_cannot_be_reached_stops_all_or_is_left_out(lab: SshHosts, tmp_path: Path) -> None:
    with lab.config.open() as file:
        config = file.read()
    own = tmp_path / "config"
    own.write_text(f"Host gone\n  HostName 10.88.0.99\n  ConnectTimeout 2\nHost closed\n  Port 9\n{config}")
    begun = tmp_path / "begun"
    words = ("--ssh-config", str(own), "--ssh", "web1,closed=root@10.88.0.12")
    wrong_key = tmp_path / "known"
    wrong_key.write_text((lab.folder / "known_hosts").read_text().replace("10.88.0.12 ", "10.88.0.99 "))
    own.write_text(config.replace(str(lab.folder / "known_hosts"), str(wrong_key)))
    refused = _run(lab, tmp_path, *words, "--", "touch", str(begun))
    assert refused.returncode == 2
    assert "closed: cannot be reached: Host key verification failed.; compare its new key" in refused.stderr
    assert "1 of 2 hosts cannot be recorded, so nothing was begun; mend that, or record the others: --anyway" in (
        refused.stderr
    )
    assert not begun.exists()
    assert not list(tmp_path.glob("*captures*"))
    others = _run(lab, tmp_path, *words, "--anyway", "--", *_requests(lab, 3))
    assert others.returncode == 0, others.stderr
    assert list(_hosts(tmp_path)) == ["web1"]


def test_one_host_by_two_names_is_recorded_once(lab: SshHosts, tmp_path: Path) -> None:
    done = _run(lab, tmp_path, "--ssh", "web1,again=root@10.88.0.11", "--", *_requests(lab, 3))
    assert done.returncode == 0, done.stderr
    assert "again: it is the same host as web1, and recorded as that; name it once" in done.stderr
    assert list(_hosts(tmp_path)) == ["web1"]


@pytest.mark.parametrize(("method", "what"), [("agent", "agent"), ("agent", "sshd"), ("tcpdump", "sshd")])
def test_what_is_killed_loses_only_its_host(lab: SshHosts, tmp_path: Path, method: str, what: str) -> None:
    with _recording(lab, tmp_path, "--ssh", "web1,db1", "--with", method) as (running, lines):
        subprocess.run(_requests(lab, 5), check=True)
        time.sleep(1)  # until what was captured is on its way
        for pid in _pids_in(lab, "db1", "--interface" if method == "agent" else "tcpdump", parent=what == "sshd"):
            os.kill(pid, signal.SIGKILL)
        assert running.stderr is not None
        while "lost" not in lines[-1]:
            lines.append(running.stderr.readline().removeprefix("tracer: ").rstrip())
        subprocess.run(_requests(lab, 5), check=True)
        running.send_signal(signal.SIGINT)
    assert running.returncode == 0, lines
    (lost,) = [line for line in lines if " is lost after " in line]
    assert lost.startswith("db1 is lost after ")
    packets = _hosts(tmp_path)
    assert packets["web1"] > packets["db1"] > 10


def _pids_in(lab: SshHosts, host: str, word: str, *, parent: bool) -> list[int]:
    """The processes on a host with this word in their command line; or the sshd of the session above them."""
    space = os.readlink(f"/proc/{lab.hosts[host].holder}/ns/net")
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdecimal() or os.readlink(folder / "ns" / "net") != space:
                continue
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_capture = any(each.decode(errors="replace").endswith(word) for each in words[:2])
        if is_capture and not parent:
            found.append(int(folder.name))
        if parent and words[0].startswith(b"sshd: ") and b"listener" not in words[0]:
            found.append(int(folder.name))
    return found


def test_a_full_disk_ends_the_recording_and_not_the_command(lab: SshHosts, tmp_path: Path) -> None:
    small, done_file, script = tmp_path / "small", tmp_path / "done", tmp_path / "load.sh"
    small.mkdir()
    script.write_text(f'#!/bin/sh\n"$@"\ntouch {done_file}\n')
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(small)], check=True)
    try:
        done = _run(lab, small, "--ssh", "web1,db1", "--", "sh", str(script), *_requests(lab, 500, 0.002))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    assert "no space left on the disk of" in done.stderr
    assert "the recording ends, what is stored is kept" in done.stderr
    assert done_file.exists()


@pytest.mark.parametrize("after_lines", [0, 1])
def test_ctrl_c_before_it_records_begins_nothing(lab: SshHosts, tmp_path: Path, after_lines: int) -> None:
    begun = tmp_path / "begun"
    argv = _argv(lab, "-o", str(tmp_path / "t"), "--ssh", HOSTS, "--", "sh", "-c", f"sleep 1; touch {begun}")
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    connecting = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    _wait_until(lambda: bool(connecting.read_text()), "it does not connect")
    for _ in range(after_lines):
        running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=SECONDS)
    assert "Traceback" not in said
    if running.returncode == 130:
        assert not begun.exists()
        assert not (tmp_path / "t.captures").exists()
    assert not list(tmp_path.glob(".*captures*"))


def test_sources_of_what_was_recorded_can_be_replayed(lab: SshHosts, tmp_path: Path) -> None:
    assert _run(lab, tmp_path, "--ssh", "web1,db1", "--", *_requests(lab, 3)).returncode == 0
    assert [source.host for source in host_sources([str(tmp_path / "t.captures")])] == ["db1", "web1"]


def _status(words: str, lab: SshHosts) -> dict[str, str]:
    """`/proc/PID/status` of the one process on web1 whose command line has these words."""
    space = os.readlink(f"/proc/{lab.hosts['web1'].holder}/ns/net")
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and os.readlink(folder / "ns" / "net") == space:
                said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if said.startswith("/proc/self/fd/") and words in said:
                    lines = (folder / "status").read_text().splitlines()
                    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        except OSError:
            continue
    raise AssertionError(f"no agent with {words}")


@pytest.mark.parametrize(("owners", "bits"), [("users", 1 << 13), ("processes", 1 << 13 | 1 << 2 | 1 << 19)])
def test_the_agent_sent_along_keeps_the_rights_that_its_options_take(
    lab: SshHosts, tmp_path: Path, owners: str, bits: int
) -> None:
    with _recording(lab, tmp_path, "--ssh", "web1", "--with", "agent", "--owners", owners) as (running, _):
        found = _status("--host web1", lab)
        subprocess.run(_requests(lab, 3), check=True, timeout=SECONDS)
        running.send_signal(signal.SIGINT)
    sets = {name: int(found[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")}
    assert sets == {"CapPrm": bits, "CapEff": bits, "CapBnd": bits, "CapInh": 0, "CapAmb": 0}
    assert found["NoNewPrivs"] == "1"
    assert _hosts(tmp_path)["web1"] > 0
