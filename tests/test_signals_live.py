"""SIGTERM, Ctrl-C and SIGKILL while a cluster comes up and while it is recorded: no process and no folder is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage_cluster.hosts.state import STATE_DIR_VARIABLE
from tests.helpers.live_cluster import cluster_in, small_topology
from tests.helpers.polling import PATIENCE_S, wait_for

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("signals_of_a_terminal")]
TRACER = (sys.executable, "-P", "-m", "tracer")


def processes_of(words: str) -> list[int]:
    """Processes whose command line or environment names this."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if words.encode() in said:
            found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state of a cluster that is up."""
    folder = tmp_path_factory.mktemp("signals")
    with cluster_in(folder / "cluster", small_topology(folder)):
        yield folder / "cluster"


@pytest.mark.parametrize(
    ("stage", "number"),
    [("agents", signal.SIGTERM), ("command", signal.SIGINT), ("command", signal.SIGKILL)],
)
def test_a_recording_that_is_ended_leaves_nothing_behind(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, number: signal.Signals
) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(state_dir))
    mark = tmp_path / "began"
    command = ["sh", "-c", f"touch {mark}; exec sleep 77"]
    process = subprocess.Popen(
        [*TRACER, "record", "--quiet", "-o", str(tmp_path / "t"), "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    seen = mark.exists if stage == "command" else lambda: bool(list(tmp_path.glob(".t.captures.*")))
    wait_for(seen, stage)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    wait_for(lambda: not processes_of(str(tmp_path)), "agents and command to end")
    left = sorted(path.name for path in tmp_path.iterdir() if path != mark)
    if number != signal.SIGKILL:
        # A signal while the command runs is the command's; what was captured is then analysed, and kept.
        assert left in ([] if stage == "agents" else ["t", "t.captures"], [] if stage == "agents" else ["t.captures"])
        return
    assert len(left) == 1
    again = [*TRACER, "record", "--quiet", "-o", str(tmp_path / "t"), "--", "swift", "stat"]
    done = subprocess.run(again, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert f"tracer: removed {tmp_path / left[0]}, left by a run that was killed\n" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path != mark) == ["t", "t.captures"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_recording_that_is_ended_while_it_is_analysed_keeps_what_was_captured(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(state_dir))
    argv = [*TRACER, "record", "--quiet", "-o", str(tmp_path / "t"), "--", "swift", "stat"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: bool(list(tmp_path.glob(".t.*.partial"))) or process.poll() is not None, "the analysis")
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    wait_for(lambda: not processes_of(str(tmp_path)), "agents and command to end")
    left = {path.name for path in tmp_path.iterdir()}
    assert "t.captures" in left, said
    if number != signal.SIGKILL:
        assert left <= {"t", "t.captures"}
    subprocess.run([*TRACER, "replay", "--quiet", "-o", str(tmp_path / "t"), str(tmp_path / "t.captures")], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"t", "t.captures"}, "the next replay removes what is left"


STARTING: dict[str, Callable[[Path], bool]] = {
    "files": lambda place: (place / "topology.toml").exists(),
    "keeper": lambda place: len(processes_of(str(place))) > 1,
    "hosts": lambda place: len(processes_of(str(place))) > 3,
    "servers": lambda place: any(place.glob("logs/*")),
}
"""What shows that the start of a cluster has come so far."""


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        *(("files", signal.SIGTERM), ("keeper", signal.SIGKILL), ("hosts", signal.SIGINT)),
        *(("hosts", signal.SIGKILL), ("servers", signal.SIGTERM), ("servers", signal.SIGKILL)),
    ],
)
def test_a_cluster_whose_start_is_ended_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, stage: str
) -> None:
    place = tmp_path / "cluster"
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(place))
    up = [*TRACER, "cluster", "up", "--topology", str(small_topology(tmp_path))]
    process = subprocess.Popen(up, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: STARTING[stage](place) or process.poll() is not None, stage)
    is_up = process.poll() is not None
    process.send_signal(number)
    process.wait(PATIENCE_S)
    try:
        if not is_up:
            wait_for(lambda: not processes_of(str(place)), "all of them to end")
        assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(place) in line]
        left = (place / "topology.toml").exists()
        done = subprocess.run(up, capture_output=True, text=True, check=True)
        assert ("removing what a cluster that was killed left" in done.stderr) is (left and not is_up)
    finally:
        subprocess.run([*TRACER, "cluster", "down"], check=True, stdout=subprocess.DEVNULL)
    assert not place.exists()
    assert processes_of(str(place)) == []
