"""Reservations through the gateway: space with a bucket, throughput by X-Papio-Access-ID; refusals in S3's words."""

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, IncompleteReadError, ResponseStreamingError

from storage_cluster import book_api
from storage_cluster.s3.signatures import Credentials
from storage_cluster.servers.disks.accesses import parse_access
from storage_cluster.servers.reservations.claims import format_time
from storage_cluster.topology import Disk
from testkit.loopback_store import LoopbackStore
from tests.helpers.s3_clients import client_of

MB = 1_000_000
BUCKET = "data"
OWNER, STRANGER = Credentials("test:tester", "testing"), Credentials("test2:tester2", "testing2")
Reserve = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    disk = Disk("", "ssd", read_bytes_per_s=40 * MB, write_bytes_per_s=40 * MB, size_mib=100)
    with LoopbackStore(tmp_path_factory.mktemp("store"), book_of=disk) as running:
        client_of(running).create_bucket(Bucket=BUCKET)
        client_of(running).put_object(Bucket=BUCKET, Key="k", Body=b"x" * MB)
        yield running


def ask(store: LoopbackStore, method: str, path: str, fields: Any = None, who: Credentials = OWNER) -> Any:
    book = store.topology.service("reservations")
    return book_api.ask(f"http://{book.address}:{book.port}", who, method, path, fields)


@pytest.fixture
def reserve(store: LoopbackStore) -> Iterator[Reserve]:
    """Reserves, and gives back at the end."""
    made: list[dict[str, Any]] = []

    def reserve(
        direction: str = "read", rate: float = 5, *, seconds: float = 60, start_s: float = 0.0, **more: Any
    ) -> dict:
        start_s = start_s or time.time()
        fields = {"bucket": BUCKET, "direction": direction, "mb_per_s": rate, "key": "k" if direction == "read" else ""}
        fields |= {"start": format_time(start_s), "end": format_time(start_s + seconds)}
        made.append(ask(store, "POST", "/v1/accesses", fields | more))
        return made[-1]

    yield reserve
    for each in made:
        ask(store, "DELETE", f"/v1/accesses/{each['id']}")


def client_with(store: LoopbackStore, access_id: str, **options: Any) -> Any:
    """A client that names a reservation."""
    client = client_of(store, **options)
    client.meta.events.register(
        "before-sign.s3", lambda request, **_: request.headers.add_header("X-Papio-Access-ID", access_id)
    )
    return client


def turns(store: LoopbackStore) -> list[dict[str, Any]]:
    files = store.root.glob("logs/*/object.turns.jsonl")
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def code_of(raised: Any) -> str:
    return str(raised.value.response["Error"]["Code"])


def test_a_read_uses_its_reservation(store: LoopbackStore, reserve: Reserve) -> None:
    made = reserve("read")
    assert client_with(store, made["id"]).get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"x" * MB
    mine = [line for line in turns(store) if line["access"] == made["id"]]
    assert sum(line["bytes"] for line in mine) >= MB
    (place,) = made["rates"]
    assert {line["device"] for line in mine} == {place.partition("/")[2]}


def test_a_write_uses_its_reservation_on_all_replicas(store: LoopbackStore, reserve: Reserve) -> None:
    made = reserve("write")
    client_with(store, made["id"]).put_object(Bucket=BUCKET, Key="w", Body=b"y" * MB)
    mine = [line for line in turns(store) if line["access"] == made["id"]]
    assert sum(line["bytes"] for line in mine) >= 3 * MB


def test_parts_use_the_reservation_that_their_upload_was_begun_with_in_any_order(
    store: LoopbackStore, reserve: Reserve
) -> None:
    made, plain = reserve("write", 60), client_of(store)
    assert made["is_spread"]
    upload = client_with(store, made["id"]).create_multipart_upload(Bucket=BUCKET, Key="m")["UploadId"]
    parts, body = [], random.Random(1).randbytes(6 * 1024**2)
    for number in (3, 1, 2):
        data = body if number < 3 else b"end"
        etag = plain.upload_part(Bucket=BUCKET, Key="m", UploadId=upload, PartNumber=number, Body=data)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    parts.sort(key=lambda part: part["PartNumber"])
    plain.complete_multipart_upload(Bucket=BUCKET, Key="m", UploadId=upload, MultipartUpload={"Parts": parts})
    assert plain.get_object(Bucket=BUCKET, Key="m")["Body"].read() == body + body + b"end"
    mine = [line for line in turns(store) if line["access"] == made["id"] and line["bytes"] > 10_000]
    assert sum(line["bytes"] for line in mine) >= 3 * 2 * len(body)
    listed = ask(store, "POST", "/v1/accesses", _read_of("m"))
    assert len(listed["rates"]) >= 2
    ask(store, "DELETE", f"/v1/accesses/{listed['id']}")


def _read_of(key: str) -> dict[str, Any]:
    return {"bucket": BUCKET, "key": key, "direction": "read", "mb_per_s": 1, "end": format_time(time.time() + 60)}


def test_who_names_no_reservation_is_not_affected_and_cannot_name_one_by_the_back_door(store: LoopbackStore) -> None:
    client = client_of(store)
    forged = "forged 4000000000 storage1/d1=1,storage2/d1=1,storage3/d1=1,storage1/d2=1,storage2/d2=1,storage3/d2=1"
    assert parse_access(forged) is not None
    client.meta.events.register(
        "before-sign.s3", lambda request, **_: request.headers.add_header("X-Backend-Access", forged)
    )
    client.get_object(Bucket=BUCKET, Key="k")["Body"].read()
    assert "forged" not in {line["access"] for line in turns(store)}


@pytest.mark.parametrize(
    ("made", "operation", "code"),
    [
        ({"direction": "write"}, "get", "ReservationMismatch"),
        ({"direction": "read"}, "put", "ReservationMismatch"),
        ({"start_s": 4_000_000_000.0}, "get", "ReservationNotYetValid"),
        ({"seconds": 0.5}, "get", "ReservationExpired"),
    ],
)
def test_a_reservation_for_something_else_is_refused(
    store: LoopbackStore, reserve: Reserve, made: dict[str, Any], operation: str, code: str
) -> None:
    client = client_with(store, reserve(**made)["id"])
    with pytest.raises(ClientError) as raised:
        while operation == "get":  # until it is refused
            client.get_object(Bucket=BUCKET, Key="k")
        client.put_object(Bucket=BUCKET, Key="k", Body=b"")
    assert code_of(raised) == code


def test_unknown_and_foreign_ids_are_refused_alike(store: LoopbackStore, reserve: Reserve) -> None:
    made = reserve("read")
    stranger = client_with(store, made["id"])
    stranger._request_signer._credentials = boto3.Session("test2:tester2", "testing2").get_credentials()
    client_of(store).put_bucket_acl(Bucket=BUCKET, ACL="public-read-write")
    for client in (client_with(store, "0" * 32), client_with(store, "../spaces"), client_with(store, "é"), stranger):
        with pytest.raises(ClientError) as raised:
            client.put_object(Bucket=BUCKET, Key="other", Body=b"")
        assert code_of(raised) in ("NoSuchReservation", "SignatureDoesNotMatch")
    assert ask(store, "GET", "/v1/accesses", who=STRANGER) == []
    client_of(store).put_bucket_acl(Bucket=BUCKET, ACL="private")


def test_no_value_of_the_header_makes_the_gateway_fail(store: LoopbackStore) -> None:
    source = random.Random(9)
    letters = "abc019-_/.%?#&= \t;,'\"<>"
    for _ in range(25):
        text = "".join(source.choice(letters) for _ in range(source.randint(1, 40))).strip() or "x"
        with pytest.raises(ClientError) as raised:
            client_with(store, text).get_object(Bucket=BUCKET, Key="k")
        assert code_of(raised) == "NoSuchReservation"


def test_a_second_reservation_that_does_not_fit_is_refused(store: LoopbackStore, reserve: Reserve) -> None:
    reserve("read", 30)
    with pytest.raises(book_api.BookError, match=r"5\.6 MB/s left of the 10\.0 .*there is room from"):
        reserve("read", 10)
    reserve("read", 5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bucket": "none", "direction": "write"}, "no bucket none"),
        ({"bucket": BUCKET, "direction": "read", "key": "none"}, "no object none"),
        ({"bucket": BUCKET, "direction": "read"}, "a read is of an object"),
        ({"bucket": BUCKET, "direction": "write", "end": "2020-01-01T00:00:00Z", "start": "2019-01-01"}, "in the past"),
        (None, "no JSON object"),
    ],
)
def test_what_cannot_be_reserved_is_refused_in_words(store: LoopbackStore, fields: Any, said: str) -> None:
    if fields is not None:
        fields = {"mb_per_s": 1, "end": format_time(time.time() + 60)} | fields
    with pytest.raises(book_api.BookError, match=said):
        ask(store, "POST", "/v1/accesses", fields)


def test_a_download_ends_with_its_reservation(store: LoopbackStore, reserve: Reserve) -> None:
    client_of(store).put_object(Bucket=BUCKET, Key="large", Body=b"z" * 20 * MB)
    ends_s = time.time() + 2
    made = reserve("read", 10, seconds=2, key="large")
    reply = client_with(store, made["id"]).get_object(Bucket=BUCKET, Key="large")
    reply["Body"].read(MB)
    time.sleep(max(0.0, ends_s + 0.5 - time.time()))  # the rest does not fit into the buffers on the way
    with pytest.raises((IncompleteReadError, ResponseStreamingError, ConnectionClosedError)):
        reply["Body"].read()


def test_an_upload_ends_with_its_reservation_and_leaves_nothing(store: LoopbackStore, reserve: Reserve) -> None:
    made = reserve("write", 10, seconds=0.3)
    with pytest.raises(ClientError) as raised:
        client_with(store, made["id"]).put_object(Bucket=BUCKET, Key="late", Body=b"z" * 40 * MB)
    assert code_of(raised) == "ReservationExpired"
    assert "late" not in [each["Key"] for each in client_of(store).list_objects_v2(Bucket=BUCKET)["Contents"]]


def test_a_client_that_vanishes_takes_no_more_turns(store: LoopbackStore, reserve: Reserve) -> None:
    client_of(store).put_object(Bucket=BUCKET, Key="gone", Body=b"z" * 30 * MB)
    made = reserve("read", 30, key="gone")
    reply = client_with(store, made["id"]).get_object(Bucket=BUCKET, Key="gone")
    reply["Body"].read(1)
    reply["Body"]._raw_stream._connection.sock.close()  # type: ignore[union-attr]
    reply["Body"].close()
    other = reserve("read", 1, key="gone")
    client_with(store, other["id"]).get_object(Bucket=BUCKET, Key="gone")["Body"].read()  # a second, or more
    given = {
        key: sum(line["bytes"] for line in turns(store) if line["access"] == key) for key in (made["id"], other["id"])
    }
    assert given[other["id"]] >= 30 * MB
    assert given[made["id"]] < 20 * MB


def test_without_the_book_what_it_said_holds_and_nothing_new_does(store: LoopbackStore, reserve: Reserve) -> None:
    made, other = reserve("read"), reserve("read")
    client_with(store, made["id"]).get_object(Bucket=BUCKET, Key="k")["Body"].read()
    store.stop("book", "reservations")
    client_with(store, made["id"]).get_object(Bucket=BUCKET, Key="k")["Body"].read()
    with pytest.raises(ClientError) as raised:
        client_with(store, other["id"]).get_object(Bucket=BUCKET, Key="k")
    assert code_of(raised) == "ServiceUnavailable"
    store.restart("book", "reservations")
    client_with(store, other["id"]).get_object(Bucket=BUCKET, Key="k")["Body"].read()


def space(size: float, seconds: float = 60.0, **more: str) -> str:
    fields = {"Size": str(size), "End": format_time(time.time() + seconds)} | more
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f"<CreateBucketConfiguration><SpaceReservation>{inner}</SpaceReservation></CreateBucketConfiguration>"


def create(store: LoopbackStore, bucket: str, document: str) -> None:
    """CreateBucket with a document that boto3 does not know."""
    client = client_of(store)
    client.meta.events.register(
        "before-call.s3.CreateBucket", lambda params, **_: params.update(body=document.encode())
    )
    client.create_bucket(Bucket=bucket)


def test_a_bucket_takes_what_its_space_has_room_for_multipart_included(store: LoopbackStore) -> None:
    create(store, "small", space(7 * MB))
    client = client_of(store)
    client.put_object(Bucket="small", Key="a", Body=b"a" * MB)
    upload = client.create_multipart_upload(Bucket="small", Key="m")["UploadId"]
    for number in (1, 2, 3, 4, 5):
        client.upload_part(Bucket="small", Key="m", UploadId=upload, PartNumber=number, Body=b"p" * MB)
    with pytest.raises(ClientError) as raised:
        client.put_object(Bucket="small", Key="b", Body=b"b" * 2 * MB)
    assert code_of(raised) == "QuotaExceeded"
    assert "1000000 of 7000000 bytes left" in str(raised.value)
    client.abort_multipart_upload(Bucket="small", Key="m", UploadId=upload)
    client.put_object(Bucket="small", Key="b", Body=b"b" * 2 * MB)


def test_space_is_given_back_with_its_bucket(store: LoopbackStore) -> None:
    create(store, "most", space(110 * MB))
    with pytest.raises(ClientError) as raised:
        create(store, "more", space(90 * MB))
    assert code_of(raised) == "ReservationRefused"
    assert "MB left of the" in str(raised.value)
    assert "more" not in [each["Name"] for each in client_of(store).list_buckets()["Buckets"]]
    client_of(store).delete_bucket(Bucket="most")
    create(store, "more", space(90 * MB))
    client_of(store).delete_bucket(Bucket="more")


def test_a_bucket_that_exists_keeps_no_second_space(store: LoopbackStore) -> None:
    with pytest.raises(ClientError) as raised:
        create(store, BUCKET, space(MB))
    assert code_of(raised) == "BucketAlreadyOwnedByYou"
    assert [each for each in ask(store, "GET", "/v1/spaces") if each["bucket"] == BUCKET] == []


def test_after_its_end_a_bucket_can_be_read_and_emptied_but_not_written(store: LoopbackStore) -> None:
    create(store, "short", space(MB, seconds=2))
    client = client_of(store)
    client.put_object(Bucket="short", Key="a", Body=b"a")
    while ask(store, "GET", "/v1/spaces"):  # those that have not ended
        if [each["bucket"] for each in ask(store, "GET", "/v1/spaces")] == ["small"]:
            break
    with pytest.raises(ClientError) as raised:
        client.put_object(Bucket="short", Key="b", Body=b"b")
    assert code_of(raised) == "ReservationExpired"
    assert client.get_object(Bucket="short", Key="a")["Body"].read() == b"a"
    client.delete_object(Bucket="short", Key="a")
    client.delete_bucket(Bucket="short")


def test_a_space_with_a_base_throughput_gives_it_to_every_request(store: LoopbackStore) -> None:
    create(store, "based", space(MB, BaseThroughput="2"))
    client_of(store).put_object(Bucket="based", Key="a", Body=b"a" * 1000)
    (mine,) = [each for each in ask(store, "GET", "/v1/spaces") if each["bucket"] == "based"]
    assert mine["base_mb_per_s"] == 2
    assert mine["id"] in {line["access"] for line in turns(store)}
    client_of(store).delete_object(Bucket="based", Key="a")
    client_of(store).delete_bucket(Bucket="based")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (space(0), "InvalidArgument"),
        (space(MB, seconds=-5), "InvalidArgument"),
        (space(MB, End=""), "InvalidArgument"),
        (space(MB, BaseThroughput="nan"), "InvalidArgument"),
        (space(MB, Size="1e999"), "InvalidArgument"),
        (space(MB, Colour="red"), "MalformedXML"),
        ("<CreateBucketConfiguration><SpaceReservation/></CreateBucketConfiguration>", "InvalidArgument"),
        ("<CreateBucketConfiguration>", "MalformedXML"),
    ],
)
def test_a_document_that_asks_for_no_space_that_there_can_be_is_refused(
    store: LoopbackStore, document: str, code: str
) -> None:
    with pytest.raises(ClientError) as raised:
        create(store, "never", document)
    assert code_of(raised) == code


def settled_room_bytes(store: LoopbackStore) -> int:
    """The room for all others, once it does not change any more: uploads that were cut off are still being removed."""
    read: list[int] = []
    deadline_s = time.monotonic() + 30
    while len(read) < 4 or len(set(read[-4:])) > 1:
        assert time.monotonic() < deadline_s, read
        read.append(ask(store, "GET", "/v1/room")["bytes"])
        time.sleep(0.5)
    return read[-1]


def test_buckets_without_reserved_space_cannot_fill_what_others_reserved(store: LoopbackStore) -> None:
    """Six devices of 105 MB hold 210 MB three times; so with 110 reserved there are less than 100 for all others."""
    create(store, "held", space(110 * MB))
    room_bytes = settled_room_bytes(store)
    assert 20 * MB < room_bytes < 100 * MB
    client, written = client_of(store), []
    client.create_bucket(Bucket="plain")
    with pytest.raises(ClientError) as raised:
        for number in range(20):
            client.put_object(Bucket="plain", Key=f"{number}", Body=bytes(10 * MB))
            written.append(f"{number}")
    assert code_of(raised) == "InsufficientStorage"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 507
    assert "Outside of reservations the store has" in str(raised.value)
    assert 10 * MB <= 10 * MB * len(written) <= room_bytes
    with pytest.raises(ClientError) as raised:
        for number in range(20):
            upload = client.create_multipart_upload(Bucket="plain", Key=f"m{number}")["UploadId"]
            client.upload_part(Bucket="plain", Key=f"m{number}", UploadId=upload, PartNumber=1, Body=bytes(10 * MB))
            client.abort_multipart_upload(Bucket="plain", Key=f"m{number}", UploadId=upload)
    assert code_of(raised) == "InsufficientStorage"
    client.put_object(Bucket="held", Key="k", Body=bytes(20 * MB))
    client.delete_object(Bucket="held", Key="k")
    client.delete_bucket(Bucket="held")
    client.put_object(Bucket="plain", Key="more", Body=bytes(20 * MB))
    for key in (*written, "more"):
        client.delete_object(Bucket="plain", Key=key)
