"""Load on S3: what goes over the wire, against a store in memory that verifies each signature."""

import asyncio
import csv
import dataclasses
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from storage_cluster.bench import formats, simple
from storage_cluster.bench.distributed.controller import Submission
from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Connection, Reply, Timeouts
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.login_options import StoreWords
from storage_cluster.bench.model import Kind, StorageConfig, Workload
from storage_cluster.bench.results import folder
from storage_cluster.bench.results.folder import Run
from storage_cluster.bench.results.rows import Row
from storage_cluster.bench.run import local
from storage_cluster.bench.storage import Order, s3_answers
from storage_cluster.bench.storage.opening import Login
from storage_cluster.bench.storage.s3 import S3
from storage_cluster.bench.storage.s3_options import read_options
from storage_cluster.errors import NotRunningError
from tests.helpers.tiny_s3 import ACCESS_KEY, SECRET_KEY, TinyS3
from tests.helpers.tiny_store import HANG, Behave, Seen, serving_store
from tracer.secret_rules import without_secrets

QUICK = Timeouts(1.0, 0.3)
KEYS = ("k", "a b+c", "ä/€", "..", "a/../b", "//", "x//y/", "~-_.", "%2F", "?&=#")


def store_config(store: TinyS3, **options: object) -> StorageConfig:
    given = {"endpoint": store.url, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    given |= {name: str(value) for name, value in options.items()}
    return StorageConfig("s3", tuple(given.items()))


def with_store(work: Callable[[TinyS3], Awaitable[None]], behave: Behave | None = None, domain: str = "") -> None:
    async def run() -> None:
        async with serving_store(TinyS3(behave, domain=domain)) as store:
            await work(store)

    asyncio.run(run())


async def do(store: S3, order: Order) -> tuple[Reply, str]:
    """One request of one order, and why its answer is not a good one."""
    connection = Connection(store.endpoint, QUICK)
    request = store.request(order)
    hashed = order.hash_check and order.kind is Kind.READ
    reply = await connection.exchange(request.head, request.body, hashed=hashed)
    connection.close()
    return reply, store.fault(order, reply)


def run_workload(
    workload: Workload, path: Path, behave: Behave | None = None, timeouts: Timeouts = QUICK, **options: object
) -> tuple[Run, TinyS3]:
    """A workload, done on a store in memory."""

    async def run() -> tuple[Run, TinyS3]:
        async with serving_store(TinyS3(behave)) as store:
            login = Login(store_config(store, **options))
            info = folder.describe(workload, "test")
            return await local.run(workload, path / "run", info, login=login, timeouts=timeouts), store

    return asyncio.run(run())


def simple_run(
    operation: str, path: Path, count: int, size: int, *more: Behave, **options: object
) -> tuple[Run, TinyS3]:
    retries = int(str(options.pop("retries", 0)))
    workload = simple.workload(
        operation, count=count, size_bytes=size, concurrency=2, retries_max=retries, container="bench"
    )
    return run_workload(workload, path, *more, **options)


def rows_of(run: Run, stage: str) -> tuple[list[Row], list[Row]]:
    """The rows of a stage's operations, and of their requests where they have several."""
    rows = [row for row in run.rows() if row.stage == stage]
    return [row for row in rows if not row.request], [row for row in rows if row.request]


@pytest.mark.parametrize("payload", ["unsigned", "signed", "chunked", "trailer"])
@pytest.mark.parametrize("key", KEYS)
def test_any_key_is_written_read_and_deleted(key: str, payload: str) -> None:
    async def work(memory: TinyS3) -> None:
        memory.containers["b"] = {}
        store = S3(read_options(store_config(memory, payload=payload)))
        write = Order(Kind.WRITE, "b", key, 150_000, hash_check=True)
        for order in (write, dataclasses.replace(write, kind=Kind.READ)):
            assert (await do(store, order))[1] == ""
        assert memory.containers["b"] == {key: b"".join(bodies.body(write.path, 150_000))}
        reply, fault = await do(store, Order(Kind.DELETE, "b", key))
        assert (reply.status, fault, memory.containers["b"]) == (204, "", {})
        assert reply.transaction_id == memory.ids[-1]

    with_store(work)


@pytest.mark.parametrize(
    ("path_style", "host", "bucket", "in_host"),
    [
        ("false", "localhost", "bucket", True),
        ("true", "localhost", "bucket", False),
        ("false", "localhost", "my_bucket", False),
        ("false", "localhost", "my.bucket", False),
        ("false", "", "bucket", False),
    ],
)
def test_a_bucket_is_in_the_host_name_where_it_can_be(path_style: str, host: str, bucket: str, in_host: bool) -> None:
    async def work(memory: TinyS3) -> None:
        store = S3(read_options(store_config(memory, path_style=path_style)))
        for order in (Order(Kind.INIT, bucket), Order(Kind.WRITE, bucket, "a/b", 10)):
            assert (await do(store, order))[1] == ""
        assert list(memory.containers[bucket]) == ["a/b"]
        assert memory.seen[-1].headers["host"].startswith(f"{bucket}.") == in_host
        assert memory.seen[-1].path == ("/a/b" if in_host else f"/{bucket}/a/b")

    with_store(work, domain=host)


def test_a_domain_may_differ_from_the_endpoints_host() -> None:
    async def work(memory: TinyS3) -> None:
        url = f"http://127.0.0.1:{memory.port}"
        store = S3(read_options(store_config(memory, endpoint=url, path_style="false", domain="s3.example")))
        assert (await do(store, Order(Kind.INIT, "bucket")))[1] == ""
        assert (list(memory.containers), memory.seen[-1].path) == (["bucket"], "/")
        assert memory.seen[-1].headers["host"] == f"bucket.s3.example:{memory.port}"

    with_store(work, domain="s3.example")


def test_a_bucket_that_is_ours_already_is_as_good_as_made_and_one_of_another_is_not() -> None:
    async def work(memory: TinyS3) -> None:
        store = S3(read_options(store_config(memory)))
        assert [(await do(store, Order(Kind.INIT, "b")))[1] for _ in range(2)] == ["", ""]
        memory.behave = lambda seen: memory.error(409, "BucketAlreadyExists")
        assert (await do(store, Order(Kind.INIT, "b")))[1] == "status"

    with_store(work)


@pytest.mark.parametrize(("kind", "fault"), [(Kind.CLEANUP, ""), (Kind.DISPOSE, ""), (Kind.DELETE, "status")])
def test_what_is_gone_is_as_good_as_cleaned_up(kind: Kind, fault: str) -> None:
    async def work(memory: TinyS3) -> None:
        order = Order(kind, "nothing", "" if kind is Kind.DISPOSE else "here")
        reply, found = await do(S3(read_options(store_config(memory))), order)
        assert (reply.status, found) == (404, fault)

    with_store(work)


@pytest.mark.parametrize(
    ("status", "code", "retried"),
    [
        (503, "SlowDown", True),
        (500, "InternalError", True),
        (429, "TooManyRequests", True),
        (400, "RequestTimeout", True),
        (400, "InvalidRequest", False),
        (404, "NoSuchKey", False),
        (403, "AccessDenied", False),
        (409, "OperationAborted", False),
    ],
)
def test_what_is_tried_again(status: int, code: str, retried: bool) -> None:
    async def work(memory: TinyS3) -> None:
        memory.ids.append("x")
        memory.behave = lambda seen: memory.error(status, code)
        store = S3(read_options(store_config(memory)))
        order = Order(Kind.READ, "b", "k")
        reply, fault = await do(store, order)
        assert (fault, store.may_retry(order, reply)) == ("status", retried)

    with_store(work)


def test_a_wrong_key_is_refused() -> None:
    async def work(memory: TinyS3) -> None:
        reply, fault = await do(S3(read_options(store_config(memory, secret_key="guess"))), Order(Kind.INIT, "b"))
        assert (reply.status, s3_answers.error_code(reply.body), fault) == (403, "SignatureDoesNotMatch", "status")

    with_store(work)


def test_a_listing_of_several_pages_has_every_key() -> None:
    async def work(memory: TinyS3) -> None:
        store = S3(read_options(store_config(memory)))
        assert await store.present("b") == {}
        memory.containers["b"] = {key: b"?" * at for at, key in enumerate(KEYS)}
        assert await store.present("b") == {key: at for at, key in enumerate(KEYS)}
        reply, fault = await do(store, Order(Kind.LIST, "b"))
        assert (reply.status, fault) == (200, "")
        memory.behave = lambda seen: memory.error(403, "AccessDenied")
        with pytest.raises(NotRunningError, match="403 AccessDenied"):
            await store.present("b")

    with_store(work)


BOMB = b'<!DOCTYPE a [<!ENTITY a "aaaa">]><Error><Code>&a;</Code></Error>'


@pytest.mark.parametrize("body", [b"", b"<Error>", b"no XML", BOMB, b"<Other><Code>SlowDown</Code></Other>"])
def test_an_answer_that_is_no_error_has_no_code(body: bytes) -> None:
    assert s3_answers.error_code(body) == ""
    assert s3_answers.listing(body) is None


# operations of several requests


@pytest.mark.parametrize("payload", ["unsigned", "signed", "chunked", "trailer"])
def test_large_objects_go_up_in_parts(tmp_path: Path, payload: str) -> None:
    run, store = simple_run("put", tmp_path, 2, 2_500_000, payload=payload, part_size_bytes=1_000_000, parallel_parts=2)
    expected = {f"object-{n:06d}": b"".join(bodies.body(f"bench/object-{n:06d}", 2_500_000)) for n in range(2)}
    assert store.containers["bench"] == expected
    assert (run.info.state, store.uploads) == ("done", {})
    operations, requests = rows_of(run, "put")
    assert [row.bytes for row in operations] == [2_500_000] * 2
    assert sorted((row.idx, row.request) for row in requests) == [(idx, n) for idx in (0, 1) for n in range(1, 6)]
    assert {row.transaction_id for row in requests} <= set(store.ids)
    assert len({row.transaction_id for row in requests}) == 10
    assert run.tally.total().operations_count == 3
    assert folder.load(tmp_path / "run").tally.dump() == run.tally.dump()
    assert not any(row.measured or row.final for row in requests)
    with (tmp_path / "run" / "timeline.csv").open(newline="") as file:
        seconds = list(csv.DictReader(file))
    assert sum(int(second["operations"]) for second in seconds) == 3
    assert sum(int(second["retries"]) for second in seconds) == 0


def test_connections_of_parts_count_towards_those_of_a_driver(tmp_path: Path) -> None:
    workload = simple.workload("put", count=100, size_bytes=9, concurrency=65, retries_max=0, container="bench")
    with pytest.raises(WorkloadError, match="4,160 connections"):
        run_workload(workload, tmp_path, part_size_bytes=1, parallel_parts=64)


def test_an_operation_lasts_from_its_first_request_to_its_last_byte(tmp_path: Path) -> None:
    run, _ = simple_run("put", tmp_path, 1, 2_500_000, part_size_bytes=1_000_000)
    (operation,), requests = rows_of(run, "put")
    assert operation.start_ns == min(row.start_ns for row in requests)
    ended = max(row.end_ns for row in requests)
    assert abs(operation.end_ns - ended) < 1_000_000  # two clocks
    last = max(requests, key=lambda row: row.request)
    assert abs(operation.start_ns + operation.first_byte_ns - last.start_ns - last.first_byte_ns) < 1_000_000
    assert operation.transaction_id == max(requests, key=lambda row: row.duration_ns).transaction_id


def test_parts_go_up_side_by_side_but_no_more_than_allowed(tmp_path: Path) -> None:
    now, most = 0, 0

    async def count(seen: Seen) -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.02)
        now -= 1

    def behave(seen: Seen) -> object:
        return count(seen) if "partNumber" in seen.path else None

    workload = simple.workload("put", count=1, size_bytes=1000, concurrency=1, retries_max=0, container="bench")
    run, _ = run_workload(workload, tmp_path, behave, part_size_bytes=100, parallel_parts=3)
    assert most == 3
    assert len({row.local_port for row in rows_of(run, "put")[1]}) == 3


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2000, 2500])
def test_large_objects_come_down_in_ranges(tmp_path: Path, size: int) -> None:
    run, store = simple_run("get", tmp_path, 3, size, part_size_bytes=1000)
    assert (run.info.state, run.tally.total().failures_count) == ("done", 0)
    operations, requests = rows_of(run, "get")
    assert [row.bytes for row in operations] == [size] * 3
    assert len(requests) == 3 * (max(-(-size // 1000), 1) if size else 2)
    ranges = {seen.headers.get("range") for seen in store.seen if seen.method == "GET" and "list-type" not in seen.path}
    assert ranges == {f"bytes={n}-{n + 999}" for n in range(0, max(size, 1), 1000)} | (set() if size else {None})


def test_a_wrong_byte_in_any_range_is_found(tmp_path: Path) -> None:
    def spoil(seen: Seen) -> object:
        if seen.headers.get("range") != "bytes=1000-1999" or "000001" not in seen.path:
            return None
        return b"HTTP/1.1 206 Said\r\nContent-Length: 4\r\n\r\n????"

    run, _ = simple_run("get", tmp_path, 3, 2500, spoil, part_size_bytes=1000)
    assert run.tally.total().errors == {"wrong_hash": 1}


def test_an_object_replaced_while_it_is_read_is_no_mixture(tmp_path: Path) -> None:
    reads = 0

    def replace(seen: Seen) -> None:
        nonlocal reads
        reads += seen.headers.get("range") == "bytes=0-999"
        if reads == 2 and seen.headers.get("if-match"):
            holder[0].containers["bench"]["object-000001"] = b"other" * 500

    holder: list[TinyS3] = []

    async def run() -> Run:
        async with serving_store(TinyS3(replace)) as store:
            holder.append(store)
            workload = simple.workload("get", count=3, size_bytes=2500, concurrency=1, retries_max=0, container="bench")
            login = Login(store_config(store, part_size_bytes=1000))
            return await local.run(workload, tmp_path / "run", folder.describe(workload, "t"), login=login)

    assert asyncio.run(run()).tally.total().errors == {"status_412": 1}


def test_a_part_that_is_stored_otherwise_than_sent_is_found(tmp_path: Path) -> None:
    def spoil(seen: Seen) -> object:
        is_it = "partNumber=2" in seen.path
        return b'HTTP/1.1 200 OK\r\nETag: "0"\r\nContent-Length: 0\r\n\r\n' if is_it else None

    text = (
        TOML.format(more="")
        + """[[stage]]
name = "main"
[[stage.work]]
total_ops = 1
operations = [{ kind = "write", containers = "c(1)", objects = "c(1)", sizes = "c(250)KB", hash_check = true }]
"""
    )
    workload = formats.parse(text.encode(), "t.toml")[0]
    run, store = run_workload(workload, tmp_path, spoil, part_size_bytes=100_000)
    assert (run.tally.total().errors, store.uploads) == ({"wrong_hash": 1}, {})
    again, _ = run_workload(workload, tmp_path / "again", part_size_bytes=100_000)
    assert again.tally.total().errors == {}


def test_a_request_that_is_tried_again_is_signed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(1_700_000_000)
    monkeypatch.setattr("storage_cluster.bench.storage.s3_requests.time.time", lambda: float(next(seconds)))
    dates: list[str] = []

    def refuse_once(seen: Seen) -> object:
        if seen.path.endswith("object-000000"):
            dates.append(seen.headers["x-amz-date"])
        return b"HTTP/1.1 503 Said\r\nContent-Length: 0\r\n\r\n" if len(dates) == 1 else None

    run, _ = simple_run("put", tmp_path, 1, 10, refuse_once, retries=1)
    assert (run.tally.total().failures_count, len(set(dates))) == (0, 2)


def test_a_part_is_tried_again_and_the_others_are_not(tmp_path: Path) -> None:
    refused: list[str] = []

    def refuse_once(seen: Seen) -> object:
        if "partNumber=2" in seen.path and not refused:
            refused.append(seen.path)
            return b"HTTP/1.1 503 Said\r\nContent-Length: 0\r\n\r\n"
        return None

    run, store = simple_run("put", tmp_path, 1, 2500, refuse_once, part_size_bytes=1000, retries=1)
    assert (run.tally.total().failures_count, len(store.containers["bench"])) == (0, 1)
    _, requests = rows_of(run, "put")
    assert sorted((row.request, row.attempt, row.status) for row in requests if row.attempt > 1 or row.error) == [
        (3, 1, 503),
        (3, 2, 200),
    ]


@pytest.mark.parametrize("failing", ["partNumber=2", "uploadId"])
def test_an_upload_that_fails_is_given_up(tmp_path: Path, failing: str) -> None:
    def refuse(seen: Seen) -> object:
        is_it = failing in seen.path and seen.method == ("PUT" if "part" in failing else "POST")
        return b"HTTP/1.1 403 Said\r\nContent-Length: 0\r\n\r\n" if is_it else None

    run, store = simple_run("put", tmp_path, 1, 2500, refuse, part_size_bytes=1000)
    assert run.tally.total().errors == {"status_403": 1}
    assert (store.containers["bench"], store.uploads) == ({}, {})
    assert store.seen[-1].method == "DELETE"


def test_an_error_within_a_200_is_an_error(tmp_path: Path) -> None:
    def refuse(seen: Seen) -> object:
        body = b"<Error><Code>InternalError</Code></Error>"
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        return head + body if seen.method == "POST" and "uploadId" in seen.path else None

    run, store = simple_run("put", tmp_path, 1, 2500, refuse, part_size_bytes=1000, retries=2)
    assert run.tally.total().errors == {"status_500": 1}
    assert [seen.method for seen in store.seen].count("POST") == 4
    assert store.uploads == {}


def test_an_upload_under_way_when_time_is_up_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_cluster.bench.run.work.GRACE_S", 0.1)

    def hang(seen: Seen) -> object:
        return HANG if "partNumber=2" in seen.path else None

    workload = simple.workload(
        "put", count=1, size_bytes=2500, concurrency=1, retries_max=0, container="bench", seconds=0.1
    )
    run, store = run_workload(workload, tmp_path, hang, Timeouts(60, 60), part_size_bytes=1000)
    operations, _ = rows_of(run, "put")
    assert [row.error for row in operations] == ["cancelled"]
    assert store.uploads == {}


# workloads

COSBENCH = """<?xml version="1.0" encoding="UTF-8" ?>
<workload name="s3-sample" description="sample benchmark for s3">
  <storage type="{kind}" config="accesskey=test:tester;secretkey=testing;proxyhost=;proxyport=;endpoint={url}{more}" />
  <workflow>
    <workstage name="init"><work type="init" workers="1" config="cprefix=s3testqwer;containers=r(1,2)" /></workstage>
    <workstage name="prepare"><work type="prepare" workers="1"
      config="cprefix=s3testqwer;containers=r(1,2);objects=r(1,10);sizes=c(64)KB" /></workstage>
    <workstage name="main"><work name="main" workers="8" totalOps="60">
      <operation type="read" ratio="70" config="cprefix=s3testqwer;containers=u(1,2);objects=u(1,10)" />
      <operation type="write" ratio="20" config="cprefix=s3testqwer;containers=u(1,2);objects=u(11,20);sizes=c(64)KB" />
      <operation type="list" ratio="10" config="cprefix=s3testqwer;containers=u(1,2)" />
    </work></workstage>
    <workstage name="cleanup"><work type="cleanup" workers="1"
      config="cprefix=s3testqwer;containers=r(1,2);objects=r(1,20)" /></workstage>
    <workstage name="dispose">
      <work type="dispose" workers="1" config="cprefix=s3testqwer;containers=r(1,2)" /></workstage>
  </workflow>
</workload>"""


@pytest.mark.parametrize(
    ("kind", "more"), [("s3", ""), ("s3v4", ";path_style_access=true;timeout=30000;no_verify_ssl=true;aws_region=eu-1")]
)
def test_a_cosbench_file_for_s3_runs_unchanged(tmp_path: Path, kind: str, more: str) -> None:
    async def run() -> tuple[Run, TinyS3]:
        async with serving_store(TinyS3()) as store:
            text = COSBENCH.format(kind=kind, url=store.url, more=more)
            workload = formats.parse(text.encode(), "s3.xml")[0]
            return await local.run(workload, tmp_path / "run", folder.describe(workload, "test")), store

    done, store = asyncio.run(run())
    assert (done.info.state, done.tally.total().failures_count, store.containers) == ("done", 0, {})
    assert done.tally.total().operations_count == 2 + 20 + 60 + 40 + 2
    assert all(SECRET_KEY not in file.read_text() for file in (tmp_path / "run").glob("*.[jc]s*n") if file.is_file())


def test_cosbenchs_keys_without_effect_are_reported() -> None:
    text = COSBENCH.format(kind="s3", url="http://h", more=";no_verify_ssl=true")
    assert formats.parse(text.encode(), "s3.xml")[0].notices == (
        "s3.xml line 3: attribute config of <storage>: key no_verify_ssl of <storage> has no effect here",
    )


TOML = """name = "t"
[storage]
kind = "s3"
endpoint = "http://127.0.0.1:9000"
{more}
[[stage]]
name = "init"
[[stage.work]]
kind = "init"
containers = "r(1,2)"
"""


def options_of(more: str) -> StorageConfig:
    workload = formats.parse(TOML.format(more=more).encode(), "t.toml")[0]
    return workload.stages[0].works[0].storage


def test_a_toml_file_names_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    found = read_options(options_of('path_style = false\npart_size_bytes = 8388608\npayload = "trailer"'))
    assert (found.credentials.access_key, found.credentials.secret_key, found.region) == ("key", "hush", "eu-north-1")
    assert (found.path_style, found.part_size_bytes, found.payload, found.parallel_parts) == (
        False,
        1 << 23,
        "trailer",
        4,
    )
    found = read_options(options_of('access_key = "k"\nsecret_key = "s"\nregion = "r"'))
    assert (found.credentials.access_key, found.credentials.secret_key, found.region) == ("k", "s", "r")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('access_key = "k"', "option secret_key of storage s3 is missing"),
        ("", "AWS_ACCESS_KEY_ID"),
        ('payload = "sealed"', "none of unsigned, signed"),
        ('path_style = "maybe"', "neither true nor false"),
        ("part_size_bytes = -1", "no whole number"),
        ("parallel_parts = 0", "no whole number"),
        ('timeout = "soon"', "no whole number"),
    ],
)
def test_an_option_that_cannot_be_is_refused(more: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    keys = "" if "access_key" in more or not more else 'access_key = "k"\nsecret_key = "s"\n'
    with pytest.raises(WorkloadError, match=problem) as raised:
        read_options(options_of(keys + more))
    assert "t.toml" in str(raised.value)
    assert without_secrets(str(raised.value)) == str(raised.value)


def store_words(**given: object) -> StoreWords:
    nothing = {"auth": "", "user": "u", "key": "k", "s3": "", "access_key": "", "secret_key": "", "storage": ()}
    return StoreWords(**(nothing | given))  # type: ignore[arg-type]


def test_a_command_line_names_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    words = store_words(s3="http://127.0.0.1:1", storage=("payload=signed", "region=r"))
    login = words.login()
    assert login is not None
    assert isinstance(login.credentials, StorageConfig)
    found = read_options(login.credentials)
    assert (found.payload, found.region, found.credentials.secret_key) == ("signed", "r", "hush")
    assert Submission(file="", content="", **words.as_submitted()).login() == login
    assert store_words().login() is None
    swift = store_words(auth="http://127.0.0.1:1/auth/v1.0")
    assert Submission(file="", content="", **swift.as_submitted()).login() == swift.login()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"s3": "http://h:1", "auth": "http://h:2"}, "two stores"),
        ({"storage": ("payload=signed",)}, "--storage is for --s3"),
        ({"s3": "http://h:1", "storage": ("endpoint=x",)}, "no option of an S3 store"),
        ({"s3": "http://h:1", "storage": ("payload",)}, "no option of an S3 store"),
        ({"s3": "http://h:1", "access_key": "k"}, "secret_key"),
        ({"s3": "https://h:1", "access_key": "k", "secret_key": "s"}, "TLS is not supported"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        store_words(**given).login()


@pytest.mark.parametrize("endpoint", ["", "https://h:1", "h:1"])
def test_an_endpoint_that_cannot_be_is_refused(endpoint: str) -> None:
    with pytest.raises(WorkloadError, match="endpoint"):
        read_options(StorageConfig("s3", (("endpoint", endpoint),)))
