"""Browser uploads: forms with signed policies, and forms that somebody may upload without one."""

import base64
import datetime
import hashlib
import hmac
import json
from typing import Any

import pytest
import requests

from tests.helpers.s3_answers import answer_of

Fields = dict[str, str]
LATER = "2100-01-01T00:00:00Z"
BASE: list[Any] = [
    {"bucket": "posted-to"},
    ["starts-with", "$key", "foo"],
    {"acl": "private"},
    ["starts-with", "$Content-Type", "text/plain"],
    ["content-length-range", 0, 1024],
]


@pytest.fixture(scope="module")
def url(client: Any, gateway_url: str) -> str:
    client.create_bucket(Bucket="posted-to")
    client.create_bucket(Bucket="posted-public", ACL="public-read-write")
    return gateway_url


def fields_for(policy: Any, /, **changes: str | None) -> Fields:
    """A form's fields, its policy signed by version 2; None leaves a field out."""
    text = base64.b64encode(json.dumps(policy).encode()).decode()
    signed = base64.b64encode(hmac.digest(b"testing", text.encode(), "sha1")).decode()
    fields = {"key": "foo.txt", "AWSAccessKeyId": "test:tester", "acl": "private", "signature": signed}
    fields |= {"Content-Type": "text/plain", "policy": text}
    given = {name.replace("_", "-") if name.startswith("x_") else name: value for name, value in changes.items()}
    return {name: value for name, value in {**fields, **given}.items() if value is not None}


def post(url: str, fields: Fields, body: bytes = b"bar", bucket: str = "posted-to") -> requests.Response:
    files = {**{name: (None, value) for name, value in fields.items()}, "file": ("dir/name.txt", body)}
    return requests.post(f"{url}/{bucket}", files=files, allow_redirects=False, timeout=10)


def policy_of(*conditions: Any, **changes: Any) -> dict[str, Any]:
    return {"expiration": LATER, "conditions": [*BASE, *conditions]} | changes


META, CODE = ["eq", "$x-amz-meta-foo", "bar"], ["eq", "$success_action_status", "201"]
SHA256 = base64.b64encode(hashlib.sha256(b"bar").digest()).decode()


@pytest.mark.parametrize(
    ("policy", "changes", "status"),
    [
        (policy_of(), {}, 204),
        (policy_of(), {"signature": "wrong"}, 403),
        (policy_of(), {"signature": None}, 400),
        (policy_of(), {"AWSAccessKeyId": "foo"}, 403),
        (policy_of(), {"policy": None}, 400),
        (policy_of(), {"key": None}, 400),
        (policy_of(), {"key": "bar.txt"}, 403),
        (policy_of(), {"acl": "public-read"}, 403),
        (policy_of(), {"Content-Type": "image/png"}, 403),
        (policy_of(META), {"x_amz_meta_foo": "bar"}, 204),
        (policy_of(META), {"x_amz_meta_foo": "baz"}, 403),
        (policy_of(META), {}, 403),
        (policy_of(), {"x_amz_meta_foo": "bar"}, 403),
        (policy_of(), {"x_ignore_foo": "bar"}, 204),
        (policy_of(["STARTS-WITH", "$X-Amz-Meta-Foo", "b"]), {"x_amz_meta_foo": "bar"}, 204),
        (policy_of(conditions=BASE[1:]), {}, 403),
        (policy_of(conditions=[{"bucket": "other"}, *BASE[1:]]), {}, 403),
        (policy_of(conditions=[*BASE[:4], ["content-length-range", 0, 2]]), {}, 400),
        (policy_of(conditions=[*BASE[:4], ["content-length-range", 4, 9]]), {}, 400),
        (policy_of(conditions=[*BASE[:4], ["content-length-range", 0]]), {}, 400),
        (policy_of(conditions=[*BASE[:4], ["content-length-range", -1, 0]]), {}, 400),
        (policy_of({}), {}, 400),
        (policy_of(expiration="2009-01-01T00:00:00Z"), {}, 403),
        (policy_of(expiration=str(datetime.datetime(2100, 1, 1))), {}, 400),
        ({"conditions": BASE}, {}, 400),
        ({"expiration": LATER}, {}, 400),
        ({"EXPIRATION": LATER, "conditions": BASE}, {}, 400),
        ({"expiration": LATER, "CONDITIONS": BASE}, {}, 400),
        ([], {}, 400),
        (policy_of(["starts-with", "$x-amz-checksum-sha256", ""]), {"x_amz_checksum_sha256": SHA256}, 204),
        (policy_of(["starts-with", "$x-amz-checksum-sha256", ""]), {"x_amz_checksum_sha256": "sailorjerry"}, 400),
    ],
    ids=str,
)
def test_a_form_is_as_its_policy_says(
    url: str, client: Any, policy: Any, changes: dict[str, str | None], status: int
) -> None:
    client.delete_object(Bucket="posted-to", Key="foo.txt")
    assert post(url, fields_for(policy, **changes)).status_code == status
    stored = answer_of(client.head_object, Bucket="posted-to", Key="foo.txt")
    assert stored == ((200, "") if status == 204 else (404, "404"))


def test_a_form_may_be_signed_by_version_4(url: str, client: Any) -> None:
    made = client.generate_presigned_post("posted-to", "v4/${filename}", Conditions=[["content-length-range", 1, 9]])
    answer = post(url, made["fields"], b"four")
    assert answer.status_code == 204
    assert client.get_object(Bucket="posted-to", Key="v4/name.txt")["Body"].read() == b"four"
    changed = made["fields"] | {"x-amz-signature": "0" * 64}
    assert post(url, changed).status_code == 403


@pytest.mark.parametrize(("asked", "status"), [("200", 200), ("201", 201), ("204", 204), ("404", 204)])
def test_a_form_chooses_its_status(url: str, asked: str, status: int) -> None:
    fields = {"key": "foo.txt", "acl": "public-read", "success_action_status": asked}
    answer = post(url, fields, bucket="posted-public")
    assert (answer.status_code, "<Key>foo.txt</Key>" in answer.text) == (status, status == 201)
    assert answer.headers["ETag"] == '"37b51d194a7513e45b56f6524f2d51f2"'


def test_a_form_redirects(url: str) -> None:
    fields = {"key": "foo.txt", "success_action_redirect": "http://localhost/done"}
    answer = post(url, fields, bucket="posted-public")
    found = "http://localhost/done?bucket=posted-public&key=foo.txt&etag=%2237b51d194a7513e45b56f6524f2d51f2%22"
    assert (answer.status_code, answer.headers["Location"]) == (303, found)


def test_everybody_may_post_where_everybody_may_write(url: str, client: Any) -> None:
    tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"
    fields = {"key": "${filename}", "x-amz-meta-foo": "bar", "tagging": tags, "acl": "public-read"}
    assert post(url, fields, b"b" * 200_000, bucket="posted-public").status_code == 204
    found = client.get_object(Bucket="posted-public", Key="name.txt")
    assert (found["Body"].read(), found["Metadata"]) == (b"b" * 200_000, {"foo": "bar"})
    assert found["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"] == "1"
    assert post(url, {"key": "foo.txt"}).status_code == 403
    assert requests.post(f"{url}/posted-public", data={"key": "k"}, timeout=10).status_code == 412
