"""What hosts use: rates from counters of real processes, a real interface, and a model of a disk."""

import dataclasses
import os
import struct
import time
from pathlib import Path

import pytest

from storage_cluster.bench import use
from storage_cluster.bench.use import SampleFile, Sampler, read_samples
from storage_cluster.hosts import groups
from storage_cluster.hosts.cluster import ClockStatus, ClusterStatus, DeviceStatus, HostStatus
from storage_cluster.hosts.counters import TCP_COUNTERS, HostCounters
from storage_cluster.hosts.groups import HostGroup, group_name


def cluster_of(tmp_path: Path, inode: int) -> ClusterStatus:
    devices = (DeviceStatus("d1", "hdd", "", str(tmp_path / "d1.counters")), DeviceStatus("d2", "none", "", ""))
    host = HostStatus("here", ("127.0.0.1",), ("lo",), (), (), inode, None, devices)
    return ClusterStatus(True, str(tmp_path), "here", {}, (host,))


def write_counters(path: Path, busy_ns: int) -> None:
    path.write_bytes(struct.pack("<10q", 0, 0, 0, 0, 0, busy_ns // 1000, busy_ns, 0, 0, 0))


@pytest.fixture(autouse=True)
def without_real_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CGROUP_ROOT", tmp_path)


@pytest.fixture(params=["a group", "no group"])
def grouped(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where control groups are made: in a folder that looks like cgroup v2 with all processes, or nowhere."""
    if request.param == "no group":
        return None
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "cgroup.procs").touch()
    group = tmp_path / group_name(tmp_path, "here")
    group.mkdir()
    (group / "cgroup.procs").write_text("\n".join(name for name in os.listdir("/proc") if name.isdigit()))
    return group


def count_in_group(group: Path | None, usec: int, written: int) -> None:
    if group is not None:
        (group / "cpu.stat").write_text(f"usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
        (group / "cpu.pressure").write_text(f"some avg10=1.00 total={usec // 2}\nfull avg10=0.00 total=0\n")
        (group / "io.stat").write_text(f"8:0 rbytes=5 wbytes={written} rios=1\n8:16 rbytes=0 wbytes=1 rios=0\n")


def test_what_this_host_uses(tmp_path: Path, grouped: Path | None) -> None:
    count_in_group(grouped, 1000, 0)
    sampler = Sampler(cluster_of(tmp_path, os.stat("/proc/self/ns/net").st_ino))
    write_counters(tmp_path / "d1.counters", 0)
    begun = time.monotonic_ns()
    assert sampler.look() == []
    stop = time.process_time() + 0.2
    while time.process_time() < stop:
        pass
    write_counters(tmp_path / "d1.counters", busy_ns := (time.monotonic_ns() - begun) // 2)
    count_in_group(grouped, 201_000, 4096)
    found = {sample.metric: sample.value for sample in sampler.look()}
    assert found.keys() == {
        "cpu_percent", "read_bytes_per_s", "written_bytes_per_s", "received_bytes_per_s.lo", "sent_bytes_per_s.lo",
        "disk_busy_percent.d1", "disk_read_bytes_per_s.d1", "disk_written_bytes_per_s.d1",
        *(f"{name}_per_s" for name in TCP_COUNTERS), *(["cpu_wait_percent"] if grouped else []),
    }  # fmt: skip
    span_s = busy_ns / 1000 / found["disk_written_bytes_per_s.d1"]  # the sampler's own, whatever the machine is at
    assert 0.2 <= span_s <= (time.monotonic_ns() - begun) / 1e9
    assert found["cpu_percent"] >= 100 * 0.18 / span_s
    assert found["disk_busy_percent.d1"] == pytest.approx(100 * busy_ns / 1e9 / span_s, rel=1e-3)
    assert found["received_bytes_per_s.lo"] >= 0
    if grouped:
        assert found["cpu_percent"] >= 99.9 * 0.2 / span_s  # more if processes were started here meanwhile
        assert found["cpu_wait_percent"] == pytest.approx(100 * 0.1 / span_s, rel=1e-3)
        assert found["written_bytes_per_s"] == pytest.approx(4096 / span_s, rel=1e-3)


@pytest.mark.parametrize("grouped", ["a group"], indirect=True)
def test_who_comes_to_the_host_comes_into_its_group_with_what_it_had_used(tmp_path: Path, grouped: Path | None) -> None:
    assert grouped is not None
    count_in_group(grouped, 1000, 0)
    host = cluster_of(tmp_path, 1).hosts[0]
    counters = HostCounters(host, tmp_path)
    assert counters.read([]).cpu_ns == 1_000_000
    while time.process_time() < 0.05:
        pass
    (grouped / "cgroup.procs").write_text("1\n")
    assert counters.read([os.getpid()]).cpu_ns >= 1_000_000 + 40_000_000
    assert (grouped / "cgroup.procs").read_text() == str(os.getpid())
    (grouped / "cpu.stat").unlink()
    assert counters.read([os.getpid()]).cpu_ns >= 0  # the group is gone: counted by process from now on


def test_groups_go_with_their_cluster(tmp_path: Path, grouped: Path | None) -> None:
    if grouped is None:
        assert HostGroup.of(tmp_path, "here") is None
        return
    made = HostGroup.of(tmp_path, "other")
    assert made is not None
    groups.remove_groups(tmp_path / "another cluster")
    assert made.directory.is_dir()
    groups.remove_groups(tmp_path)
    assert not made.directory.exists()


def test_stamps_are_of_the_hosts_own_clock(tmp_path: Path) -> None:
    hour_ns = 3_600_000_000_000
    running = cluster_of(tmp_path, 1)
    (host,) = running.hosts
    wrong = dataclasses.replace(host, clock=ClockStatus(hour_ns, 0, 0), devices=())
    sampler = Sampler(dataclasses.replace(running, hosts=(wrong,)))
    sampler.look()
    before_ns = time.time_ns()
    stamps = {sample.host_ns for sample in sampler.look()}
    assert all(before_ns + hour_ns <= stamp <= time.time_ns() + hour_ns for stamp in stamps) and stamps
    assert ClockStatus(7, -100_000_000, 100).stamp(50) == 50  # before the fault it was right
    assert ClockStatus(7, -100_000_000, 100).stamp(200) == 197


def test_a_host_without_processes_uses_nothing(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, inode=1)
    sampler = Sampler(dataclasses.replace(cluster, hosts=(dataclasses.replace(cluster.hosts[0], devices=()),)))
    sampler.look()
    assert {sample.value for sample in sampler.look()} == {0.0}


def test_samples_survive_their_file(tmp_path: Path) -> None:
    file = SampleFile.create(tmp_path / use.FILE_NAME)
    samples = [use.Sample("a", 5, "cpu_percent", 12.5), use.Sample("b", 6, "disk_busy_percent.d1", 0.0)]
    file.add(samples)
    file.close()
    assert read_samples(tmp_path / use.FILE_NAME) == samples
