"""Ctrl-C, SIGTERM and SIGKILL at stages of `replay`, `view`, `collect` and `bench`: nothing is left, or the next run
says so; of a load, what was done until then is printed.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.polling import PATIENCE_S
from tracer import scratch

pytestmark = pytest.mark.usefixtures("signals_of_a_terminal")

TRACER = (sys.executable, "-P", "-m", "tracer")
CAPTURES = Path(__file__).parents[1] / "captures" / "swift-upload-1B"
LOOK_AGAIN_S = 0.002
QUIET = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for everything, temporary files too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def start(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*TRACER, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files_left(place: Path) -> list[str]:
    """What is there beside the folders of the test itself."""
    ours = {"tmp", "state", "data"}
    return sorted(str(path.relative_to(place)) for path in place.iterdir() if path.name not in ours) + sorted(
        str(path.relative_to(place)) for path in (place / "tmp").iterdir()
    )


def seen_within(condition: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Whether it came to hold before the process ended; looked at often, but not so that the process gets less of a
    processor.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(LOOK_AGAIN_S)
    return True


STAGES: dict[str, Callable[[Path], bool]] = {
    "begin": lambda place: True,
    "writing": lambda place: any(path.name.endswith(".partial") for path in place.iterdir()),
    "tables": lambda place: any(place.glob(".*.partial/*.parquet")),
}


@pytest.mark.parametrize(
    ("stage", "number"),
    [("begin", signal.SIGINT), ("writing", signal.SIGHUP), ("writing", signal.SIGTERM), ("tables", signal.SIGINT)],
)
def test_a_replay_that_is_ended_leaves_nothing(place: Path, stage: str, number: signal.Signals) -> None:
    process = start("replay", "--quiet", "-o", str(place / "trace"), str(CAPTURES))
    if stage == "begin":
        time.sleep(0.5)
    assert seen_within(lambda: STAGES[stage](place), process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert files_left(place) == [] or (process.returncode == 0 and files_left(place) == ["trace"])
    assert stage == "begin" or process.returncode in (QUIET[number], 0), said
    assert stage == "begin" or "Traceback" not in said, said


def test_what_a_killed_replay_left_the_next_one_removes_and_says(place: Path) -> None:
    process = start("replay", "--quiet", "-o", str(place / "trace"), str(CAPTURES))
    assert seen_within(lambda: STAGES["tables"](place), process)
    process.kill()
    process.communicate()
    (partial,) = files_left(place)
    assert partial.endswith(".partial")
    again = start("replay", "--quiet", "-o", str(place / "trace"), str(CAPTURES))
    _, said = again.communicate(timeout=PATIENCE_S)
    assert said == f"tracer: removed {place / partial}, left by a run that was killed\n"
    assert files_left(place) == ["trace"]
    modes = {path.stat().st_mode & 0o777 for path in (place / "trace").iterdir()}
    assert ((place / "trace").stat().st_mode & 0o777, modes) == (0o700, {0o600})


def test_what_others_are_at_work_in_stays(tmp_path: Path) -> None:
    busy, idle = tmp_path / ".trace.01234567.partial", tmp_path / ".trace.89abcdef.partial"
    mine, link = tmp_path / "traces.partial", tmp_path / ".trace.0a0a0a0a.partial"
    for folder in (idle, mine):
        folder.mkdir()
    link.symlink_to(mine)
    code = f"import sys; from pathlib import Path; from tracer import scratch; scratch.make(Path({str(busy)!r})); "
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print('held', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert scratch.remove_leftovers(tmp_path) == [f"removed {idle}, left by a run that was killed"]
    holder.kill()
    holder.communicate()
    assert scratch.remove_leftovers(tmp_path) == [f"removed {busy}, left by a run that was killed"]
    assert mine.is_dir()
    assert link.is_symlink()


@pytest.mark.parametrize("between", ["mkdir and open", "open and flock"])
def test_a_folder_that_others_remove_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """What another process that looks for leftovers does at the worst moment."""
    look = "import sys; from pathlib import Path; from tracer import scratch; "
    look += "print(scratch.remove_leftovers(Path(sys.argv[1])))"

    def leftovers() -> str:
        return subprocess.run(
            [sys.executable, "-c", look, str(tmp_path)], check=True, capture_output=True, text=True
        ).stdout

    module, name = (os, "open") if between == "mkdir and open" else (fcntl, "flock")
    call = getattr(module, name)
    removed: list[str] = []

    def late(*given: object) -> object:
        if not removed:
            removed.append("")
            removed.append(leftovers())
        return call(*given)

    folder = tmp_path / ".trace.01234567.partial"
    monkeypatch.setattr(module, name, late)
    scratch.make(folder)
    monkeypatch.undo()
    assert "01234567.partial, left by a run that was killed" in removed[1]
    assert folder.is_dir()
    assert (leftovers(), folder.is_dir()) == ("[]\n", True), "it is held"
    scratch.release(folder)


def test_folders_of_this_process_and_of_other_users_are_no_leftovers(tmp_path: Path) -> None:
    mine, theirs = tmp_path / ".mine.01234567.partial", tmp_path / ".theirs.01234567.partial"
    scratch.make(mine)
    if os.getuid() == 0:
        theirs.mkdir()
        os.chown(theirs, 65_534, 65_534)
    before = sorted(tmp_path.iterdir())
    assert scratch.remove_leftovers(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == before
    scratch.release(mine)
    assert scratch.remove_leftovers(tmp_path) == [f"removed {mine}, left by a run that was killed"]


def test_a_fork_leaves_its_parents_folders_alone(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from tracer import scratch
folder = Path({str(tmp_path)!r}) / ".a.01234567.partial"
scratch.make(folder)
child = os.fork()
if not child:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert folder.is_dir()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    assert list(tmp_path.iterdir()) == [], "and it goes with the parent"


def test_a_signal_that_comes_where_exceptions_are_ignored_ends_the_process_all_the_same() -> None:
    code = """
import signal, sys, time, weakref
from unittest.mock import patch
from tracer import cli
class Thing: pass
def work(**_):
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing
    time.sleep(30)
    print("went on")
with patch.object(cli, "tracer", work), patch.object(work, "main", work, create=True):
    cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "")


@pytest.mark.parametrize("moment", ["made, not held", "held, not yet worked in"])
def test_a_folder_goes_with_a_process_that_is_ended_at_the_worst_moment(tmp_path: Path, moment: str) -> None:
    folder = tmp_path / ".trace.01234567.partial"
    code = f"""
import os, signal, sys
from pathlib import Path
from tracer import scratch
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
opened = os.open
def cut(*given):
    os.open = opened
    assert Path({str(folder)!r}).is_dir()
    signal.raise_signal(signal.SIGTERM)
    return opened(*given)
if {moment!r} == "made, not held":
    os.open = cut
scratch.make(Path({str(folder)!r}))
assert {moment!r} != "made, not held", "the signal was lost"
signal.raise_signal(signal.SIGTERM)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (143, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_viewer_that_is_ended_leaves_nothing_or_the_next_one_removes_it(place: Path, number: signal.Signals) -> None:
    view = ("view", "--listen", "127.0.0.1:0", "--token", "--no-browser")
    process = start(*view)
    assert process.stdout is not None
    url, where = process.stdout.readline(), process.stdout.readline()
    assert "token" not in url
    assert "the page asks for a token; it is in" in where
    assert len(list((place / "state").rglob("viewer-*.token"))) == 1
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    if number != signal.SIGKILL:
        assert files_left(place) == []
        assert list((place / "state").rglob("*.token")) == []
        return
    assert len(files_left(place)) == 1
    again = start(*view)
    assert again.stdout is not None
    again.stdout.readline()
    again.terminate()
    _, said = again.communicate(timeout=PATIENCE_S)
    assert said.count("left by a run that was killed") == 1
    assert files_left(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_collector_that_is_ended_leaves_nothing_but_its_data(place: Path, number: signal.Signals) -> None:
    collect = ("collect", "--data", str(place / "data"), "--listen", "127.0.0.1:0")
    process = start(*collect)
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    assert files_left(place) == []
    assert bool(list((place / "state").rglob("*.token"))) is (number == signal.SIGKILL)
    assert list((place / "data").rglob("*.incoming")) == []


WORKLOAD = """
name = "long"
[[stage]]
name = "fill"
[[stage.work]]
workers = 2
total_ops = 20
operations = [{ kind = "write", containers = "c(1)", objects = "s(1,20)", sizes = "c(9)B" }]
[[stage]]
name = "main"
[[stage.work]]
workers = 4
runtime_s = 300
operations = [{ kind = "write", containers = "c(1)", objects = "s(1,100)", sizes = "c(9)B" }]
"""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The auth URL of a store that answers at once."""
    argv = [sys.executable, "-m", "benchmarks.instant_server", "0"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=CAPTURES.parents[1])
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}/auth/v1.0"
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("stage", "number"),
    [("begin", signal.SIGTERM), ("begin", signal.SIGKILL)]
    + [("rows", number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGKILL)],
)
def test_a_load_that_is_ended_reports_what_was_done(
    place: Path, store: str, stage: str, number: signal.Signals
) -> None:
    file, run = place / "tmp" / "w.toml", place / "run"
    file.write_text(WORKLOAD)
    process = start("bench", "run", str(file), "--auth", store, "-o", str(run))
    rows = run / "requests.csv.zst"
    stages = {"begin": run.exists, "rows": lambda: rows.exists() and rows.stat().st_size > 1000}
    assert seen_within(stages[stage], process)
    process.send_signal(number)
    printed, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in printed + said
    assert files_left(place) == ["run", "tmp/w.toml"]
    assert run.stat().st_mode & 0o777 == 0o700
    files = sorted(path.name for path in run.iterdir())
    assert {path.stat().st_mode & 0o777 for path in run.iterdir()} <= {0o600}
    if stage == "rows":
        assert [name for name in files if name.startswith(".")] == []
        again = start("bench", "report", str(run))
        report, wrong = again.communicate(timeout=PATIENCE_S)
        state = "running" if number == signal.SIGKILL else "cancelled"
        assert report.startswith(f"long: {state}"), report + wrong


def test_what_a_killed_load_left_the_next_one_removes_and_says(place: Path, store: str) -> None:
    put = ("bench", "run", "put", "--auth", store, "--count")
    process = start(*put, "10000000")
    assert seen_within(lambda: any((place / "tmp").glob("*/run/run.json")), process)
    process.kill()
    process.communicate()
    (scratch_folder,) = files_left(place)
    again = start(*put, "1")
    _, said = again.communicate(timeout=PATIENCE_S)
    assert f"tracer: removed {place / scratch_folder}, left by a run that was killed\n" in said
    assert files_left(place) == []


@pytest.mark.parametrize(
    ("service", "number"),
    [("driver", signal.SIGINT), ("controller", signal.SIGTERM), ("driver", signal.SIGHUP)],
)
def test_a_driver_and_a_controller_that_are_ended_leave_nothing(
    place: Path, service: str, number: signal.Signals
) -> None:
    more = ("--driver", "127.0.0.1:1") if service == "controller" else ()
    process = start("bench", service, "--listen", "127.0.0.1:0", "--data", str(place / "data"), *more)
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(number)
    printed, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in printed + said
    assert files_left(place) == []
    assert not (place / "data").exists() or list((place / "data").iterdir()) == []
