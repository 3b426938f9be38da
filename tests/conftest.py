"""The one flag of the test suite, and which tests may run beside each other.

Properties are tried without a time limit: machines are busy at times.

With `-n`, tests go to several processes. Those of one module stay together, so that its fixtures are made once, but for
the viewer's, which are many and slow and whose traces are quickly made. Modules with live tests, which make hosts of
network namespaces and measure time there, stay together too, those with whole clusters and the others: none of them
runs beside another of its kind. They mostly wait, so one queue of them all would be the longest of all by far.

Temporary folders are in memory where there is room for them: the store syncs each object, so its tests mostly wait for
the disk there. What syncing is for, that a file outlives a power cut, no test can see on either.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from playwright.sync_api import Browser
from xdist.scheduler import LoadScopeScheduling

from testkit import chromium as browsers

# Where a distribution keeps sysctl, nft or haproxy; on Debian no part of an ordinary user's search path.
os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
CHROMIUM_FLAGS = ("--renderer-process-limit=1", "--js-flags=--no-opt")
"""Pages of one context run in one process, and no script is optimised: none of them runs long enough to gain by it."""
LONG = (
    "tests/test_installed.py",
    "tests/collector/service/test_live.py",
    "tests/test_cli_errors.py",
    "tests/test_captures.py",
)
"""Modules that take long as a whole start early, so that none is left for the end."""

SLOW = (
    *LONG,
    "tests/benchmarks/test_fuzz.py",
    "tests/collector/clocks/test_solve.py",
    "tests/collector/commands/test_collect.py",
    "tests/collector/decode/test_copies.py",
    "tests/collector/decode/test_forwarders.py",
    "tests/collector/decode/test_merged_captures.py",
    "tests/collector/decode/test_tls.py",
    "tests/collector/hops/test_damaged_live.py",
    "tests/collector/hops/test_matching.py",
    "tests/collector/queries/test_trace_index.py",
    "tests/collector/requests/test_inferred_parents.py",
    "tests/collector/requests/test_joined_calls.py",
    "tests/collector/requests/test_link_calibration.py",
    "tests/collector/requests/test_links_by_target.py",
    "tests/collector/requests/test_spans.py",
    "tests/collector/requests/test_streams_replayed.py",
    "tests/collector/test_accuracy.py",
    "tests/collector/test_analysis.py",
    "tests/storage_cluster/bench/test_commands.py",
    "tests/storage_cluster/bench/distributed/test_distributed.py",
    "tests/storage_cluster/bench/storage/test_s3_stores.py",
    "tests/storage_cluster/bench/distributed/test_killed.py",
    "tests/storage_cluster/test_convergence.py",
    "tests/storage_cluster/daemons/test_daemons.py",
    "tests/storage_cluster/servers/proxy/test_object_versioning.py",
    "tests/storage_cluster/servers/proxy/test_objects.py",
    "tests/storage_cluster/test_ring.py",
    "tests/storage_cluster/test_ring_commands.py",
    "tests/storage_cluster/servers/proxy/test_slo.py",
    "tests/storage_cluster/servers/s3/test_access.py",
    "tests/storage_cluster/servers/s3/test_listings.py",
    "tests/storage_cluster/servers/s3/test_multipart.py",
    "tests/storage_cluster/servers/s3/test_objects.py",
    "tests/storage_cluster/servers/s3/test_versions.py",
    "tests/storage_cluster/servers/s3/test_random_sequences.py",
    "tests/storage_cluster/servers/test_store.py",
    "tests/storage_cluster/servers/proxy/test_symlink.py",
    "tests/storage_cluster/servers/proxy/test_versions.py",
    "tests/swift_compat/test_clients.py",
    "tests/swift_compat/test_recorded.py",
    "tests/test_dependencies.py",
    "tests/test_layering.py",
    "tests/test_signals.py",
    "tests/collector/capture_files/test_decoding.py",
    "tests/collector/capture_files/test_readers.py",
    "tests/viewer/test_routes.py",
    "tests/viewer/test_uncaptured_hosts.py",
)
"""Modules that `--quick` leaves out beside live tests and those with a browser: of some 5 s or more."""


MEMORY = Path("/dev/shm")
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""The variable by which pytest learns where its temporary folders are to be."""
RUN_FOLDER = pytest.StashKey[str]()
MEMORY_NEEDED_BYTES = 4 << 30
"""A whole run leaves some 2 GiB, which are removed at its end if all passed."""


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary folders into memory, unless `--basetemp` or pytest's own variable says where they are to be."""
    if not config.option.basetemp and TEMPORARY not in os.environ and _has_room(MEMORY):
        _remove_folders_of_ended_runs()
        config.stash[RUN_FOLDER] = folder = tempfile.mkdtemp(prefix=f"twintap-tests-{os.getpid()}-", dir=MEMORY)
        os.environ[TEMPORARY] = folder
    gc.disable()  # while all modules are imported, which stay


def pytest_collection_finish(session: pytest.Session) -> None:
    """From now on garbage is collected, but not looked for in what was imported: hundreds of MB."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave nothing in memory of a run in which all passed; that of another stays until the next run."""
    folder = session.config.stash.get(RUN_FOLDER, None)
    if folder is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)


def _remove_folders_of_ended_runs() -> None:
    for folder in MEMORY.glob("twintap-tests-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _has_room(folder: Path) -> bool:
    """Whether programs can be run from the folder, and there is room for all that a run holds at a time."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return False
    return not state.f_flag & os.ST_NOEXEC and state.f_bavail * state.f_frsize >= MEMORY_NEEDED_BYTES


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--regenerate`: write expected results anew instead of comparing with them; read the diff before committing.
    `--quick`: a first answer in a minute; never enough to hand a change in.
    """
    parser.addoption("--regenerate", action="store_true", help="write expected results anew; read the diff")
    parser.addoption("--quick", action="store_true", help="without live tests, browsers, and modules that take long")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Headless Chromium; tests that need it are skipped, saying so, where it is missing."""
    if browsers.CHROMIUM is None:
        pytest.skip(browsers.MISSING)
    with browsers.chromium(*CHROMIUM_FLAGS) as browser:
        yield browser


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """How `-n` spreads the tests."""
    config.option.loadscopereorder = False
    return _ByModule(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--quick`, leave out what is slow. With `-n`: live tests first, then what takes long; those with a browser
    last.

    Playwright leaves an event loop running in its process, beside which no test can run another.
    """
    if config.getoption("quick"):
        slow = [item for item in items if _module(item.nodeid) in SLOW or _is_marked(item)]
        items[:] = [item for item in items if item not in set(slow)]
        config.hook.pytest_deselected(items=slow)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.nodeid))


def _is_marked(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("live", "browser"))


class _ByModule(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        module = _module(nodeid)
        if module.startswith("tests/viewer/"):
            return nodeid
        return _live_kind(module) or module


def _turn(nodeid: str) -> int:
    module = _module(nodeid)
    if _live_kind(module):
        return 0
    if module in LONG:
        return 1
    return 3 if _has_browser(module) else 2


def _module(nodeid: str) -> str:
    return str(nodeid).partition("::")[0]


@cache
def _live_kind(module: str) -> str:
    """Of a module with live tests, whether they make a cluster or only some hosts; empty for others."""
    text = (ROOT / module).read_text(encoding="utf-8")
    if "pytest.mark.live" not in text:
        return ""
    return "live cluster" if "helpers.live_cluster" in text or "benchmarks.faults" in text else "live hosts"


@cache
def _has_browser(module: str) -> bool:
    return module.startswith("tests/viewer/") or "pytest.mark.browser" in (ROOT / module).read_text(encoding="utf-8")


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether expected results are to be written."""
    return bool(request.config.getoption("--regenerate"))


@pytest.fixture
def signals_of_a_terminal() -> Iterator[None]:
    """Signals do what they do in a terminal, in this process and in those that it starts.

    A shell starts what runs in its background with SIGINT ignored, `nohup` ignores SIGHUP, and children inherit that.
    """
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
