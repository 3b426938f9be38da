"""What hosts use: rates from counters of real processes, a real interface, and a model of a disk."""

import dataclasses
import os
import struct
import time
from pathlib import Path

import pytest

from storage_cluster.bench import use
from storage_cluster.bench.use import SampleFile, Sampler, read_samples
from storage_cluster.hosts.cluster import ClusterStatus, DeviceStatus, HostStatus


def cluster_of(tmp_path: Path, inode: int) -> ClusterStatus:
    devices = (DeviceStatus("d1", "hdd", "", str(tmp_path / "d1.counters")), DeviceStatus("d2", "none", "", ""))
    host = HostStatus("here", ("127.0.0.1",), ("lo",), (), (), inode, None, devices)
    return ClusterStatus(True, str(tmp_path), "here", {}, (host,))


def write_counters(path: Path, busy_ns: int) -> None:
    path.write_bytes(struct.pack("<10q", 0, 0, 0, 0, 0, 0, busy_ns, 0, 0, 0))


def test_what_this_host_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "HOST_INTERFACE", "lo")
    sampler = Sampler(cluster_of(tmp_path, os.stat("/proc/self/ns/net").st_ino))
    write_counters(tmp_path / "d1.counters", 0)
    begun = time.monotonic_ns()
    assert sampler.look() == []
    stop = time.process_time() + 0.2
    while time.process_time() < stop:
        pass
    write_counters(tmp_path / "d1.counters", busy_ns := (time.monotonic_ns() - begun) // 2)
    found = {sample.metric: sample.value for sample in sampler.look()}
    span_s = (time.monotonic_ns() - begun) / 1e9
    assert found.keys() == {
        "cpu_percent", "written_bytes_per_s", "received_bytes_per_s", "sent_bytes_per_s", "disk_busy_percent.d1",
        "listen_drops_per_s", "retransmits_per_s",
    }  # fmt: skip
    assert found["cpu_percent"] >= 100 * 0.18 / span_s
    assert found["disk_busy_percent.d1"] == pytest.approx(100 * busy_ns / 1e9 / span_s, rel=0.2)
    assert found["received_bytes_per_s"] >= 0


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
