"""`tracer cluster ring`, with no cluster up: what it shows, what it changes, what it refuses."""

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from storage_cluster import ring as rings
from storage_cluster import ring_builder
from storage_cluster import topology as topologies
from storage_cluster.commands import command
from storage_cluster.errors import ClusterError
from storage_cluster.hosts import cluster
from storage_cluster.servers.disks import layout
from tracer.errors import TracerError


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of a cluster whose data was kept."""
    monkeypatch.setenv("TWINTAP_CLUSTER_DIR", str(tmp_path))
    rings.save(ring_builder.build_all(topologies.load(topologies.BUNDLED_FILE)), cluster.rings_file(tmp_path))
    return tmp_path


def run(*words: str) -> str:
    """Run `tracer cluster ring …`; what it printed."""
    done = CliRunner().invoke(command, ["ring", *words], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def shares(device: str) -> str:
    """A device's line: zone, weight, replicas in each ring."""
    (line,) = (line.split() for line in run().splitlines() if line.split()[0] == device)
    return " ".join(line[1:])


def test_a_path_is_shown_with_its_servers_and_its_files(state_dir: Path) -> None:
    ring = cluster.load_rings(state_dir)["object"]
    partition = ring.partition("AUTH_test", "c", "o o")
    first = ring.primaries(partition)[0]
    digest = rings.path_hash(("AUTH_test", "c", "o o"), ring.shape.hash_suffix)
    directory = state_dir / "data" / first.host / first.name / "objects" / str(partition) / digest[-3:] / digest
    directory.mkdir(parents=True)
    (directory / "1795179034.94752.data").touch()
    shown = run("AUTH_test/c/o o")
    assert shown.startswith(f"object ring, partition {partition} of 256, hash {digest}\n")
    assert f"curl -g -I http://10.77.0.3{first.zone}:6200/{first.name}/{partition}/AUTH_test/c/o%20o\n" in shown
    assert f"{directory}  1795179034.94752.data\n" in shown
    assert shown.count("curl") == 6
    assert shown.count("# handoff") == 6
    assert run("show", "AUTH_test/c/o o") == shown


def test_the_ring_of_an_objects_policy_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINTAP_CLUSTER_DIR", str(tmp_path))
    (tmp_path / "topology.toml").write_text(topologies.find("policies").read_text("utf-8"), "utf-8")
    shown = run("show", "AUTH_test/c/o", "--policy", "Silver")
    assert shown.startswith("object-1 ring, partition ")
    assert shown.count("curl -g -I -H 'X-Backend-Storage-Policy-Index: 1' http://10.77.0.3") == 6
    assert shown.count("/objects-1/") == 6
    assert shown.count("# handoff") == 2 * 4
    assert run("show", "AUTH_test/c/o", "--policy", "gold").startswith("object ring, partition ")
    assert run("show", "AUTH_test/c", "--policy", "silver").startswith("container ring, partition ")
    with pytest.raises(TracerError, match="no storage policy 'lead'; there are: gold, silver, bronze"):
        run("show", "AUTH_test/c/o", "--policy", "lead")


def test_shares_follow_what_is_changed(state_dir: Path) -> None:
    assert shares("storage1/d1") == "1 1 128 128 128"
    assert "object ring: 85 of 768 replicas move" in run("add", "storage3/d3")
    assert (state_dir / "data" / "storage3" / "d3" / "tmp").is_dir()
    assert shares("storage3/d3") == "3 1 85 85 85"
    run("set-weight", "storage3/d3", "0")
    assert shares("storage3/d3") == "3 0 0 0 0"
    assert "object ring: 0 of 768 replicas move" in run("remove", "storage3/d3")
    assert "0 of 768" in run("rebalance")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "storage1/d1"), "have storage1/d1 already"),
        (("add", "proxy/d1"), "no storage host; there are: storage1, storage2, storage3"),
        (("remove", "storage1/d9"), "no device storage1/d9; they have: storage1/d1"),
        (("set-weight", "d1", "2"), "'d1' is no device"),
        (("remove", "storage1/../x"), "is no device"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(state_dir: Path, words: tuple[str, ...], said: str) -> None:
    before = cluster.rings_file(state_dir).read_bytes()
    with pytest.raises(TracerError, match=said):
        run(*words)
    assert cluster.rings_file(state_dir).read_bytes() == before


def test_fewer_devices_than_replicas_is_refused(state_dir: Path) -> None:
    for name in ("storage1/d1", "storage1/d2", "storage2/d1"):
        run("remove", name)
    with pytest.raises(TracerError, match="3 replicas need as many devices"):
        run("remove", "storage2/d2")


def test_a_broken_ring_file_is_reported(state_dir: Path) -> None:
    cluster.rings_file(state_dir).write_text("{", "utf-8")
    with pytest.raises(TracerError, match="the rings cannot be read"):
        run()


def test_check_names_what_is_astray_and_exits_1(state_dir: Path) -> None:
    done = CliRunner().invoke(command, ["check"])
    assert (done.exit_code, done.output) == (0, "All replicas agree.\n")
    ring = cluster.load_rings(state_dir)["object"]
    digest = rings.path_hash(("AUTH_test", "c", "o"), ring.shape.hash_suffix)
    partition = ring.partition_of_hash(digest)
    astray = next(ring.handoffs(partition))
    directory = layout.hash_dir(state_dir / "data" / astray.host / astray.name, "objects", partition, digest)
    directory.mkdir(parents=True)
    (directory / "1795179034.94752.ts").touch()
    done = CliRunner().invoke(command, ["check", "--wait", "0.1"])
    assert done.exit_code == 1
    assert (
        f"object {digest} (partition {partition}) is on {astray.host}/{astray.name}, which is a handoff" in done.output
    )
    assert done.output.endswith("2 disagreements\n")


def test_the_next_cluster_keeps_the_rings_that_placed_the_data_it_keeps(state_dir: Path) -> None:
    run("set-weight", "storage1/d1", "2")
    run("add", "storage3/d3")
    before = cluster.load_rings(state_dir)
    topology = topologies.load(topologies.BUNDLED_FILE)
    cluster._write_rings(state_dir, topology)
    assert cluster.load_rings(state_dir) == before
    smaller = dataclasses.replace(topology, hosts=tuple(h for h in topology.hosts if h.name != "storage3"))
    cluster._write_rings(state_dir, smaller)
    assert {device.host for device in cluster.load_rings(state_dir)["object"].devices} == {"storage1", "storage2"}
    other = dataclasses.replace(topology, ring=dataclasses.replace(topology.ring, partition_power=9))
    with pytest.raises(ClusterError, match=r"another \[ring\]"):
        cluster._write_rings(state_dir, other)


@pytest.mark.parametrize("words", [["ring"], ["ring", "AUTH_test"], ["ring", "rebalance"], ["check"]])
def test_clusters_of_several_stores_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("TWINTAP_CLUSTER_DIR", str(tmp_path))
    file = topologies.find("two-back-ends")
    (tmp_path / "topology.toml").write_text(file.read_text("utf-8"), "utf-8")
    topology = topologies.load(file)
    for store in topology.stores:
        rings.save(ring_builder.build_all(topology.of_store(store)), cluster.rings_file(tmp_path, store))
    done = CliRunner().invoke(command, words, catch_exceptions=True)
    assert "this cluster has several stores (ext3, ext4)" in f"{done.output}{done.exception}"
    assert cluster.load_rings(tmp_path, "ext4")["object"].devices == topology.of_store("ext4").devices
