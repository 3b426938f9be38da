"""Works, stages and load models against a store in memory; when things are due, as pure functions."""

import asyncio
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster.bench import formats, simple
from storage_cluster.bench.engine.connection import Timeouts
from storage_cluster.bench.errors import RunError, WorkloadError
from storage_cluster.bench.model import Arrivals, Kind, OpenLoop, Operation, Step, Workload
from storage_cluster.bench.results import folder
from storage_cluster.bench.results.folder import Run
from storage_cluster.bench.results.recorder import TIMELINE_NAME
from storage_cluster.bench.results.rows import Row
from storage_cluster.bench.run import local, orders, work
from storage_cluster.bench.run.arrivals import Ramp, arrivals
from storage_cluster.bench.run.orders import Place, Shared
from storage_cluster.bench.run.pause import Pause
from storage_cluster.bench.run.worker import Window
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.swift import Credentials
from tests.helpers.tiny_store import HANG, Behave, Seen, TinyStore, response, serving

QUICK = Timeouts(1.0, 0.2)


def run_workload(
    workload: Workload, path: Path, behave: Behave | None = None, timeouts: Timeouts = QUICK
) -> tuple[Run, TinyStore]:
    """A workload, done on a store in memory."""

    async def run() -> tuple[Run, TinyStore]:
        async with serving(behave) as store:
            login = Login(Credentials(store.auth_url, "test:tester", "testing"))
            info = folder.describe(workload, "test")
            return await local.run(workload, path / "run", info, login=login, timeouts=timeouts), store

    return asyncio.run(run())


def from_toml(works: str, more: str = "") -> Workload:
    text = f'name = "t"\n[[stage]]\nname = "init"\n[[stage.work]]\nkind = "init"\ncontainers = "r(1,2)"\n{works}{more}'
    return formats.parse(text.encode(), "t.toml")[0]


WRITE = '{ kind = "write", containers = "u(1,2)", objects = "s(1,100)", sizes = "c(9)B" }'


def mix(limits: str, operations: str = WRITE) -> Workload:
    return from_toml(f'[[stage]]\nname = "main"\n[[stage.work]]\n{limits}\noperations = [{operations}]\n')


def main_rows(run: Run, name: str = "main") -> list[Row]:
    return [row for row in run.rows() if row.stage == name]


def test_put_puts_every_object_once(tmp_path: Path) -> None:
    workload = simple.workload("put", count=50, size_bytes=100, concurrency=8, retries_max=0, container="b")
    run, store = run_workload(workload, tmp_path)
    assert sorted(store.containers["b"]) == [f"object-{n:06d}" for n in range(50)]
    assert {len(body) for body in store.containers["b"].values()} == {100}
    rows = main_rows(run, "put")
    assert len(rows) == 50
    assert {row.thread for row in rows} == set(range(8))
    assert {row.local_port for row in rows} <= {seen.peer_port for seen in store.seen}
    assert run.info.state == "done"
    assert folder.load(tmp_path / "run").tally.dump() == run.tally.dump()


def test_get_puts_what_is_missing_and_checks_what_it_reads(tmp_path: Path) -> None:
    workload = simple.workload("get", count=5, size_bytes=100, concurrency=2, retries_max=0, container="b")

    def spoil(seen: Seen) -> object:
        return response(200, b"?" * 100) if seen.method == "GET" and seen.name == "b/object-000003" else None

    run, store = run_workload(workload, tmp_path, spoil)
    assert len(store.requests("PUT")) == 6
    assert run.tally.total().errors == {"wrong_hash": 1}
    assert [row.file for row in main_rows(run, "get") if row.error] == ["b/object-000003"]
    again, store = run_workload(workload, tmp_path / "again", lambda seen: None)
    assert again.tally.total().failures_count == 0


def test_a_cosbench_file_runs_unchanged(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "workloads" / "sample.xml").read_text()
    for old, new in (
        ('closuredelay="60"', ""),
        ('closuredelay="1"', ""),
        ('runtime="300" rampup="10" rampdown="5"', 'totalOps="40"'),
    ):
        text = text.replace(old, new)
    run, store = run_workload(formats.parse(text.encode(), "sample.xml")[0], tmp_path)
    assert run.info.state == "failed"  # deletes of objects that were never there
    assert run.info.note == "12 of 12 operations of removal failed; 20 % are acceptable (afr)"
    stages = run.tally.stages()
    assert list(stages) == ["init", "prepare", "main"]
    figures = {key: run.tally.figures[key] for keys in stages.values() for key in keys}
    assert {key.operation: each.operations_count for key, each in figures.items() if key.stage != "main"} == {
        "init": 4,
        "prepare": 40,
    }
    assert sum(each.operations_count for key, each in figures.items() if key.work == "main") == 40
    assert figures[("main", "main", "read")].failures_count == 0  # type: ignore[index]  a key is a tuple
    assert len(store.containers) == 4


COSBENCH = """<workload name="w">
<storage type="swift" config="{storage}"/><auth type="swauth" config="{auth}"/><workflow>
<workstage name="init"><work type="init" workers="1" config="containers=r(1,2)"/></workstage>
<workstage name="main"><work name="main" workers="1" totalOps="2" afr="0"><operation type="write"
config="containers=c(1);objects=s(1,9);sizes=c(1)B"/></work></workstage></workflow></workload>"""


@pytest.mark.parametrize(("auth", "tokens"), [("", 1), ("caching=true", 1), ("caching=false", 2)])
def test_cosbench_caching_is_one_token_for_all_works(tmp_path: Path, auth: str, tokens: int) -> None:
    run, store = run_workload(formats.parse(COSBENCH.format(storage="", auth=auth).encode(), "w.xml")[0], tmp_path)
    assert (run.info.state, store.tokens_count) == ("done", tokens)


def test_cosbench_timeout_is_that_of_requests(tmp_path: Path) -> None:
    text = COSBENCH.format(storage="timeout=50", auth="timeout=9000")

    def hang(seen: Seen) -> object:
        return HANG if seen.method == "PUT" and "/" in seen.name else None

    run, _ = run_workload(formats.parse(text.encode(), "w.xml")[0], tmp_path, hang, Timeouts(60, 60))
    assert run.tally.total().errors == {"read_timeout": 2}
    assert max(row.duration_ns for row in main_rows(run)) < 30e9


def test_a_time_ends_a_count(tmp_path: Path) -> None:
    workload = simple.workload(
        "put", count=10**6, size_bytes=1, concurrency=2, retries_max=0, container="b", seconds=0.2
    )
    run, _ = run_workload(workload, tmp_path)
    (key,) = (key for key in run.tally.figures if key.stage == "put")
    figures = run.tally.figures[key]
    assert 0 < figures.operations_count < 10**6
    assert 0 < run.info.elapsed_s(key, figures) <= 0.2


def test_an_ssbench_scenario_runs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "workloads" / "small.scenario").read_text()
    run, store = run_workload(formats.parse(text.encode(), "small.scenario")[0], tmp_path)
    assert run.info.state == "done"
    names = [name for held in store.containers.values() for name in held]
    assert len(store.containers) == 5
    assert all(int(name[-6:]) <= 9 for name in names)  # what the run created is gone, some initial ones are deleted
    rows = main_rows(run, "run")
    assert len({row.idx for row in rows}) == 50
    assert {row.operation.split()[0] for row in rows} == {"create", "read", "update", "delete"}
    assert not [row for row in rows if row.error]


def test_retries_are_rows_and_counted_apart(tmp_path: Path) -> None:
    seen_before: Counter[str] = Counter()

    def refuse_twice(seen: Seen) -> object:
        seen_before[seen.name] += 1
        return response(503) if seen.name.endswith("myobjects_3") and seen_before[seen.name] < 3 else None

    run, _ = run_workload(mix("total_ops = 5\nretries = 4"), tmp_path, refuse_twice)
    retried = [row for row in main_rows(run) if row.file.endswith("myobjects_3")]
    assert [(row.attempt, row.status, row.final) for row in retried] == [
        (1, 503, False),
        (2, 503, False),
        (3, 201, True),
    ]
    assert retried[2].waited_ns > retried[1].waited_ns > 0
    total = run.tally.total(key for key in run.tally.figures if key.stage == "main")
    assert (total.operations_count, total.failures_count, total.retries_count) == (5, 0, 2)


def test_retries_end(tmp_path: Path) -> None:
    run, _ = run_workload(
        mix("total_ops = 1\nretries = 2"),
        tmp_path,
        lambda seen: response(503) if "my" in seen.name and "/" in seen.name else None,
    )
    assert [(row.attempt, row.final) for row in main_rows(run)] == [(1, False), (2, False), (3, True)]


def test_a_connection_that_cannot_be_made_ends_an_operation_sooner(tmp_path: Path) -> None:
    workload = simple.workload(
        "put", count=3, size_bytes=1, concurrency=3, retries_max=10, container="b", connects_max=2, connections_max=2
    )
    run, _ = run_workload(workload, tmp_path)
    (key,) = (key for key in run.tally.figures if key.stage == "put")
    figures = run.tally.figures[key]
    assert (figures.successes_count, figures.failures_count, figures.retries_count) == (2, 1, 1)
    assert [row.error for row in main_rows(run, "put") if row.error] == ["connect_failed"] * 2


def test_an_expired_token_is_renewed(tmp_path: Path) -> None:
    def expire(seen: Seen) -> object:
        return response(401) if seen.headers.get("x-auth-token") == "token1" and "objects" in seen.name else None

    run, store = run_workload(mix("total_ops = 3\nretries = 1"), tmp_path, expire)
    assert store.tokens_count == 2
    assert [row.status for row in main_rows(run)] == [401, 201, 201, 201]


def test_a_closed_loop_ends_in_time_and_counts_what_ended_in_it(tmp_path: Path) -> None:
    run, _ = run_workload(mix("workers = 2\nruntime_s = 0.3\nrampup_s = 0.1\nrampdown_s = 0.1"), tmp_path)
    rows = main_rows(run)
    (began,) = (stage.started_ns for stage in run.info.stages if stage.name == "main")
    measured = [row for row in rows if row.measured]
    assert 0 < len(measured) < len(rows)
    assert min(row.start_ns for row in measured) - began >= 0.095e9  # two clocks, read one after the other
    assert max(row.end_ns for row in measured) - min(row.start_ns for row in measured) <= 0.31e9
    figures = run.tally.figures[next(key for key in run.tally.figures if key.stage == "main")]
    assert figures.outside_count == len(rows) - len(measured)


def test_bytes_are_a_limit(tmp_path: Path) -> None:
    run, _ = run_workload(mix("total_bytes = 90"), tmp_path)
    assert len(main_rows(run)) == 10


def test_an_open_loop_cannot_be_stalled(tmp_path: Path) -> None:
    asked: list[Seen] = []

    async def stall() -> None:
        await asyncio.sleep(0.3)

    def stall_once(seen: Seen) -> object:
        if "objects" in seen.name:
            asked.append(seen)
        return stall() if len(asked) == 10 and "objects" in seen.name else None

    run, _ = run_workload(
        mix('workers = 1\nrate_per_s = 100\narrivals = "even"\nruntime_s = 0.5'), tmp_path, stall_once, Timeouts()
    )
    rows = main_rows(run)
    assert 48 <= len(rows) <= 50
    assert all(row.measured for row in rows)
    late = sorted(row.response_ns for row in rows)
    assert late[-1] >= 0.29e9
    assert sum(each > 0.05e9 for each in late) > 15  # those that were due meanwhile have waited, and say so


def test_what_never_began_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRACE_S", 0.05)
    hang = mix('workers = 1\nrate_per_s = 100\narrivals = "even"\nruntime_s = 0.2')
    run, _ = run_workload(hang, tmp_path, lambda seen: HANG if "objects" in seen.name else None, Timeouts(1, 60))
    errors = Counter(row.error for row in main_rows(run))
    assert errors["cancelled"] == sum(errors.values()) >= 18
    assert len({row.idx for row in main_rows(run)}) == sum(errors.values())


def test_a_ramp_of_workers(tmp_path: Path) -> None:
    workload = mix("workers = 1\nruntime_s = 2\nramp = [{ seconds = 0.2, to = 4 }]")
    run, _ = run_workload(workload, tmp_path)
    rows = main_rows(run)
    begin = min(row.start_ns for row in rows)
    first = {thread: min(row.start_ns for row in rows if row.thread == thread) - begin for thread in range(4)}
    assert first[0] < first[1] < first[2] < first[3]
    assert first[3] >= 0.15e9  # the third of three steps in 0.2 s; the first request began a little late itself


def test_connections_per_request(tmp_path: Path) -> None:
    run, _ = run_workload(mix("total_ops = 4\nkeep_alive = false"), tmp_path)
    rows = main_rows(run)
    assert len({row.local_port for row in rows}) == 4
    assert all(row.connect_ns > 0 for row in rows)


def test_a_store_that_cannot_be_used_is_reported_before_anything_is_done(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "workloads" / "sample.xml").read_text().replace('type="swift"', 'type="ampli"')
    workload = formats.parse(text.encode(), "sample.xml")[0]
    with pytest.raises(WorkloadError, match=r"sample\.xml line 4: <storage>: storage 'ampli' is not supported"):
        asyncio.run(local.run(workload, tmp_path / "run", folder.describe(workload, "")))
    assert not (tmp_path / "run").exists()


def test_too_many_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="5,000 workers at once are more than the 4,096 of one driver"):
        run_workload(mix("total_ops = 1\nworkers = 5000"), tmp_path)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "x").write_text("")
    with pytest.raises(RunError, match="is not empty"):
        run_workload(mix("total_ops = 1"), tmp_path)


def test_a_timeline_adds_up(tmp_path: Path) -> None:
    run, _ = run_workload(mix("total_ops = 30"), tmp_path)
    lines = [line.split(",") for line in (run.folder / TIMELINE_NAME).read_text().splitlines()[1:]]
    main = [line for line in lines if line[1] == "main"]
    assert [sum(int(line[n]) for line in main) for n in (4, 5, 6, 7)] == [30, 0, 0, 270]


def test_a_timeline_has_the_works_intervals(tmp_path: Path) -> None:
    run, _ = run_workload(mix("runtime_s = 1.2\ninterval_s = 60"), tmp_path)
    lines = [line.split(",") for line in (run.folder / TIMELINE_NAME).read_text().splitlines()[1:]]
    times = {int(line[0]) for line in lines if line[1] == "main"}
    assert times and all(time % 60 == 0 for time in times)
    assert len(times) <= 2


@pytest.mark.parametrize(
    ("start", "steps", "total", "due"),
    [
        (10, [], 5, 0.5),
        (0, [Step(2, 10)], 10, 2),
        (0, [Step(2, 10)], 2.5, 1),
        (0, [Step(2, 10)], 20, 3),
        (10, [Step(1, 0), Step(1, 0), Step(0, 10)], 6, 2.1),
        (10, [Step(1, 0)], 6, float("inf")),
    ],
)
def test_when_the_next_is_due(start: float, steps: list[Step], total: float, due: float) -> None:
    assert Ramp(start, steps).time_of(total) == pytest.approx(due)


def test_a_ramp_goes_in_straight_lines() -> None:
    ramp = Ramp(2, [Step(10, 12), Step(10, 2)])
    assert [ramp.level(t) for t in (0, 5, 10, 15, 20, 99)] == [2, 7, 12, 7, 2, 2]
    assert ramp.highest == 12
    assert ramp.next_at_least(7, 0) == pytest.approx(5)
    assert ramp.next_at_least(7, 12) == 12
    assert ramp.next_at_least(7, 16) == float("inf")
    assert ramp.next_at_least(13, 0) == float("inf")


def test_even_arrivals() -> None:
    due = list(itertools.islice(arrivals(OpenLoop(4.0, Arrivals.EVEN), [], random.Random(1)), 4))
    assert due == pytest.approx([0.25, 0.5, 0.75, 1.0])
    half = list(itertools.islice(arrivals(OpenLoop(4.0, Arrivals.EVEN), [], random.Random(1), 0.5), 2))
    assert half == pytest.approx([0.5, 1.0])


def test_poisson_arrivals() -> None:
    due = list(itertools.islice(arrivals(OpenLoop(100.0), [], random.Random(1)), 10_000))
    gaps = [b - a for a, b in itertools.pairwise([0.0, *due])]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.05)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)


def scan(operation: Operation, count: int) -> list[list[str]]:
    shared = Shared()
    places = [Place(n, count) for n in range(count)]
    return [[order.path for order in orders.scan(operation, place, random.Random(1), shared)] for place in places]


def test_workers_share_a_scan_out() -> None:
    workload = from_toml(
        '[[stage]]\nname = "p"\n[[stage.work]]\nkind = "prepare"\n'
        'containers = "r(1,2)"\nobjects = "r(1,5)"\nsizes = "c(1)B"'
    )
    prepare = workload.stages[1].works[0].operations[0]
    parts = scan(prepare, 3)
    everything = [path for part in parts for path in part]
    assert sorted(everything) == sorted(f"mycontainers_{c}/myobjects_{o}" for c in (1, 2) for o in range(1, 6))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert len(scan(prepare, 40)) == 40
    init = workload.stages[0].works[0].operations[0]
    assert scan(init, 3) == [["mycontainers_1"], ["mycontainers_2"], []]
    assert init.kind is Kind.INIT


class FakeClock:
    """Time that passes only when somebody waits for it."""

    def __init__(self) -> None:
        self.now = 0

    async def wait_until(self, due: int) -> None:
        for _ in range(5):  # what was begun before runs first
            await asyncio.sleep(0)
        self.now = max(self.now, due)


def test_dispatch_hands_out_what_is_due_and_lines_up_the_rest() -> None:
    clock = FakeClock()
    begun: list[tuple[str, int, int]] = []
    gates: deque[asyncio.Event] = deque()

    class OneWorker:
        def __init__(self, name: str) -> None:
            self.name = name

        async def draw(self, due: int) -> tuple[bool, int]:
            begun.append((self.name, due, clock.now))
            gate = asyncio.Event()
            gates.append(gate)
            await gate.wait()
            return True, 0

    class NoLimit:
        pause = Pause()

        def take(self, due: int) -> bool:
            return True

        def spend(self, moved_bytes: int) -> None:
            pass

    def due_times() -> Iterator[int]:
        yield from (10, 20, 30, 40)
        gates.popleft().set()  # the first is done between 40 and 50
        yield 50

    async def run() -> None:
        dispatch = work.Dispatch([OneWorker("a"), OneWorker("b")], NoLimit())  # type: ignore[list-item, arg-type]
        await dispatch.run(due_times(), clock.wait_until)
        while gates:
            gates.popleft().set()
            for _ in range(5):
                await asyncio.sleep(0)
        await dispatch.drain()

    asyncio.run(run())
    assert begun == [("a", 10, 10), ("b", 20, 20), ("a", 30, 40), ("b", 40, 50), ("a", 50, 50)]


def test_a_pause_is_no_part_of_a_works_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        now, made = 100, Pause()
        monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
        window = Window(begin=100, end=200, pause=made)
        assert (window.measures(120, 201), window.measures(120, 200)) == (False, True)
        made.hold()
        made.hold()
        now = 150
        assert (made.is_held, made.before_ns(90), made.before_ns(130), made.before_ns(now)) == (True, 0, 30, 50)
        made.release()
        now = 1000
        assert (made.is_held, made.before_ns(130), made.before_ns(now)) == (False, 30, 50)
        assert (window.measures(160, 250), window.measures(160, 251)) == (True, False)
        assert (window.measures(99, 250), window.measures(149, 250)) == (False, True)

    asyncio.run(run())
