"""Load on S3 stores, by the command line, seen from boto3: our gateway, and those of others that are installed."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config
from click.testing import CliRunner, Result

from storage_cluster.bench.commands import command
from storage_cluster.bench.engine import bodies
from storage_cluster.bench.engine.connection import Connection, Reply
from storage_cluster.bench.model import Kind, StorageConfig
from storage_cluster.bench.results import folder
from storage_cluster.bench.storage import Order
from storage_cluster.bench.storage.s3 import LISTING_LIMIT, S3
from storage_cluster.bench.storage.s3_options import read_options
from storage_cluster.servers.s3 import listings
from storage_cluster.servers.s3.addressing import DOMAINS
from testkit import s3_stores
from testkit.loopback_store import CALM, LoopbackStore
from testkit.s3_stores import MissingProgramError, S3Store
from tests.helpers import tiny_s3
from tests.helpers.tiny_s3 import TinyS3
from tests.helpers.tiny_store import serving_store
from tests.storage_cluster.bench.storage.test_s3 import COSBENCH, KEYS

PART_BYTES = 5 << 20
"""The least that S3 allows."""
LARGE_BYTES = 2 * PART_BYTES + 12_345


@contextmanager
def start_memory(_: Path) -> Iterator[S3Store]:
    """The store that CI always has, in a thread with a loop of its own."""
    store, ready, end = TinyS3(domain="localhost"), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving_store(store):
            loops.append(asyncio.get_running_loop())
            ready.set()
            await end.wait()
        await asyncio.sleep(0)  # connections end

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield S3Store(store.port, access_key=tiny_s3.ACCESS_KEY, secret_key=tiny_s3.SECRET_KEY)
    finally:
        loops[0].call_soon_threadsafe(end.set)
        thread.join()


@contextmanager
def start_gateway(folder: Path) -> Iterator[S3Store]:
    """Our own gateway, before a small store."""
    with LoopbackStore(folder, intervals=CALM) as store:
        gateway = store.topology.service("s3")
        yield S3Store(gateway.port, domain=DOMAINS[0], access_key="test:tester", secret_key="testing")


STORES = {"memory": start_memory, "gateway": start_gateway, **s3_stores.STORES}


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    try:
        with STORES[request.param](tmp_path_factory.mktemp(request.param)) as made:
            yield made
    except MissingProgramError as error:
        pytest.skip(f"NOT TESTED on {request.param}: {error}")


@pytest.fixture
def client(store: S3Store) -> Iterator[Any]:
    """boto3, as a witness; with checksums where the store understands them."""
    checksums = "when_supported" if "trailer" in store.payloads else "when_required"
    made = boto3.client(
        "s3", endpoint_url=store.url, aws_access_key_id=store.access_key, aws_secret_access_key=store.secret_key,
        region_name="us-east-1", config=Config(
            request_checksum_calculation=checksums, response_checksum_validation="when_required",
            s3={"addressing_style": "path"}, retries={"max_attempts": 0},
        ),
    )  # fmt: skip
    yield made
    made.close()


def bench(store: S3Store, *argv: object, url: str = "", secret_key: str = "") -> Result:
    """`tracer bench run …` on a store."""
    environment = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": secret_key or store.secret_key}
    words = ["run", *map(str, argv), "--s3", url or store.url]
    return CliRunner(env=environment).invoke(command, words)


def storage_of(store: S3Store, **options: str) -> S3:
    """The load generator's own view of a store."""
    given = {"endpoint": store.url, "access_key": store.access_key, "secret_key": store.secret_key} | options
    return S3(read_options(StorageConfig("s3", tuple(given.items()))))


async def do(storage: S3, order: Order) -> Reply:
    connection = Connection(storage.endpoint)
    request = storage.request(order)
    reply = await connection.exchange(request.head, request.body, kept=True)
    connection.close()
    return reply


@pytest.mark.parametrize("payload", ["unsigned", "signed", "chunked", "trailer"])
def test_small_objects(store: S3Store, client: Any, tmp_path: Path, payload: str) -> None:
    if payload not in store.payloads:
        pytest.skip(f"this store does not understand payload {payload}")
    where = ("--container", f"small-{payload}", "--size", 100_000, "--count", 5, "--storage", f"payload={payload}")
    put = bench(store, "put", *where, "-o", tmp_path / "put")
    get = bench(store, "get", *where, "-o", tmp_path / "get")
    assert (put.exit_code, get.exit_code) == (0, 0), put.output + get.output
    found = client.get_object(Bucket=f"small-{payload}", Key="object-000003")["Body"].read()
    assert found == b"".join(bodies.body(f"small-{payload}/object-000003", 100_000))
    rows = list(folder.load(tmp_path / "put").rows())
    assert len({row.transaction_id for row in rows} - {""}) == 6 * store.has_request_ids, "each has an id of its own"


@pytest.mark.parametrize("payload", ["unsigned", "signed", "chunked", "trailer"])
def test_large_objects_in_parts(store: S3Store, client: Any, tmp_path: Path, payload: str) -> None:
    if payload not in store.payloads:
        pytest.skip(f"this store does not understand payload {payload}")
    words = ["--container", f"large-{payload}", "--size", LARGE_BYTES, "--count", 2, "--concurrency", 2]
    words += ["--storage", f"payload={payload}", "--storage", f"part_size_bytes={PART_BYTES}"]
    put = bench(store, "put", *words, "-o", tmp_path / "put")
    get = bench(store, "get", *words, "-o", tmp_path / "get")
    assert (put.exit_code, get.exit_code) == (0, 0), put.output + get.output
    found = client.get_object(Bucket=f"large-{payload}", Key="object-000001")
    assert found["Body"].read() == b"".join(bodies.body(f"large-{payload}/object-000001", LARGE_BYTES))
    numbers = sorted(row.request for row in folder.load(tmp_path / "put").rows() if row.request)
    assert numbers == sorted([1, 2, 3, 4, 5] * 2), "create, three parts, complete"
    assert sum(row.request > 0 for row in folder.load(tmp_path / "get").rows()) == 2 * 3


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_boto3_can_write_can_be_written_and_read(store: S3Store, client: Any, key: str) -> None:
    storage = storage_of(store)
    asyncio.run(do(storage, Order(Kind.INIT, "keys")))
    try:
        client.put_object(Bucket="keys", Key=key, Body=b"of boto3")
    except (botocore.exceptions.ClientError, botocore.exceptions.ParamValidationError) as error:
        pytest.skip(f"this store refuses the key: {error}")
    reply = asyncio.run(do(storage, Order(Kind.READ, "keys", key)))
    assert (reply.status, reply.body) == (200, b"of boto3")
    assert asyncio.run(do(storage, Order(Kind.WRITE, "keys", key, 9))).status == 200
    assert client.get_object(Bucket="keys", Key=key)["Body"].read() == b"".join(bodies.body(f"keys/{key}", 9))
    assert asyncio.run(storage.present("keys"))[key] == 9
    assert asyncio.run(do(storage, Order(Kind.DELETE, "keys", key))).status == 204
    assert key not in asyncio.run(storage.present("keys"))


@pytest.fixture
def page_len(request: pytest.FixtureRequest, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> int:
    """Most keys on a page of a listing. Our gateway, in this process, has shorter ones meanwhile: it writes each object
    three times."""
    assert listings.LIMIT_MAX == LISTING_LIMIT
    if request.node.callspec.params["store"] != "gateway":
        return LISTING_LIMIT
    monkeypatch.setattr(listings, "LIMIT_MAX", 100)
    return 100


def test_a_listing_of_several_pages(store: S3Store, page_len: int) -> None:
    storage, count = storage_of(store), page_len + 5
    assert asyncio.run(storage.present("pages")) == {}
    words = ("--container", "pages", "--size", 3, "--count", count, "--concurrency", 8)
    assert bench(store, "put", *words).exit_code == 0
    assert asyncio.run(storage.present("pages")) == {f"object-{n:06d}": 3 for n in range(count)}
    assert asyncio.run(do(storage, Order(Kind.LIST, "pages"))).status == 200


@pytest.mark.parametrize("style", ["true", "false"])
def test_a_cosbench_file(store: S3Store, tmp_path: Path, style: str) -> None:
    if style == "false" and not store.domain:
        pytest.skip("this store has no virtual hosts")
    text = COSBENCH.format(kind="s3", url=store.url, more=f";path_style_access={style};domain={store.domain}")
    text = text.replace("test:tester", store.access_key).replace("=testing", f"={store.secret_key}")
    if not store.overwrites_at_once:
        text = text.replace('workers="8"', 'workers="1"')
    (tmp_path / "s3.xml").write_text(text)
    done = CliRunner().invoke(command, ["run", str(tmp_path / "s3.xml"), "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert [row for row in folder.load(tmp_path / "run").rows() if row.error] == []
    kept = [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not any(store.secret_key.encode() in content for content in kept)


def test_init_again_and_cleaning_up_what_is_gone(store: S3Store) -> None:
    storage = storage_of(store)
    for order in (
        [Order(Kind.INIT, "again")] * 2 + [Order(Kind.CLEANUP, "again", "k")] + [Order(Kind.DISPOSE, "again")] * 2
    ):
        assert storage.fault(order, asyncio.run(do(storage, order))) == ""


def test_a_wrong_secret_is_a_403(store: S3Store, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["store"] == "moto":
        pytest.skip("moto verifies no signature")
    done = bench(store, "put", "--count", 1, "--container", "denied", secret_key="guess")
    assert done.exit_code == 1
    assert "403" in done.output
    assert "guess" not in done.output
