"""Devices on file systems of their own: real ones, really full, and gone with the cluster."""

import os
from pathlib import Path

import pytest

from storage_cluster import topology as topologies
from storage_cluster.errors import NotPermittedError
from storage_cluster.faults import control
from storage_cluster.hosts import cluster, filesystems
from tests.helpers.live_cluster import run_on
from tests.helpers.system_tools import needs_xfs
from tests.storage_cluster.faults.test_faults_live import SWIFT, object_lines, upload

pytestmark = pytest.mark.live

KINDS = {"storage1": "ext3", "storage2": "ext4", "storage3": "xfs"}


def with_filesystems(file: Path) -> Path:
    """The bundled cluster, d1 of each storage host on a file system of its own."""
    lines = []
    host = ""
    for line in topologies.BUNDLED_FILE.read_text("utf-8").splitlines():
        host = line.split('"')[1] if line.startswith("name = ") else host
        own = f'name = "d1", filesystem = "{KINDS.get(host)}", size_mib = 320,'
        lines.append(line.replace('name = "d1",', own) if host in KINDS else line)
    file.write_text("\n".join(lines), "utf-8")
    return file


@needs_xfs
def test_real_file_systems_fill_up_and_leave_nothing(tmp_path: Path) -> None:
    state_dir = tmp_path / "cluster"
    mounts = Path("/proc/self/mounts").read_text()
    try:
        cluster.up(state_dir, with_filesystems(tmp_path / "topology.toml"))
    except NotPermittedError as error:
        pytest.skip(f"NOT TESTED, no file systems can be made here: {error}")
    try:
        live = cluster.status(state_dir)
        keeper = cluster.state.load(state_dir).keeper.pid  # type: ignore[union-attr]
        seen = Path(f"/proc/{keeper}/mounts").read_text()
        for host, kind in KINDS.items():
            assert f"{state_dir}/data/{host}/d1 {kind} " in seen
        upload(live, tmp_path, "before")
        fault = {"kind": "full-disk", "target": "storage3/d1", "parameters": {}}
        control.ask(state_dir, {"order": "add", "fault": fault})
        room = os.statvfs(f"/proc/{keeper}/root{state_dir}/data/storage3/d1")
        assert room.f_bavail * room.f_frsize < 1 << 16
        for number in range(8):
            upload(live, tmp_path, f"full{number}")
            statuses = [line["status"] for line in object_lines(live, f"full{number}") if line["method"] == "PUT"]
            assert statuses.count(201) == 3
        control.ask(state_dir, {"order": "clear", "ids": None})
        run_on(live, "client", SWIFT, "download", "box", "before", "-o", "back", directory=tmp_path)
        assert (tmp_path / "back").read_bytes() == b"x" * 1000
    finally:
        cluster.down(state_dir)
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not (state_dir / filesystems.IMAGES_DIR).exists()
