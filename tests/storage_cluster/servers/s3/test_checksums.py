"""Checksums beside the ETag, of plain objects, of parts and of what is made of them, by today's boto3."""

import base64
import hashlib
from typing import Any

import pytest

from storage_cluster.servers.s3.checksums import ALGORITHMS, RunningChecksum
from tests.helpers.s3_answers import answer_of, code_of

PART = 5 * 1024**2
BODIES = (b"a" * PART, b"tail")


def checksum(algorithm: str, body: bytes) -> str:
    running = RunningChecksum(algorithm)
    running.update(body)
    return running.text


def test_checksums_are_what_they_are_known_to_be() -> None:
    """Check values of the CRC catalogue, and hashlib's."""
    expected = {"CRC32": 0xCBF43926, "CRC32C": 0xE3069283, "CRC64NVME": 0xAE8B14860A799888}
    for algorithm, value in expected.items():
        length = 8 if algorithm == "CRC64NVME" else 4
        assert base64.b64decode(checksum(algorithm, b"123456789")) == value.to_bytes(length, "big")
    assert base64.b64decode(checksum("SHA256", b"1")) == hashlib.sha256(b"1").digest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_is_computed_kept_and_shown(client: Any, bucket: str, algorithm: str) -> None:
    name, body = f"Checksum{algorithm}", b"some bytes"
    made = client.put_object(Bucket=bucket, Key="computed", Body=body, ChecksumAlgorithm=algorithm)
    given = client.put_object(Bucket=bucket, Key="given", Body=body, **{name: checksum(algorithm, body)})
    assert made[name] == given[name] == checksum(algorithm, body)
    for key in ("computed", "given"):
        head = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        assert (head[name], head["ChecksumType"]) == (checksum(algorithm, body), "FULL_OBJECT")
        assert name not in client.head_object(Bucket=bucket, Key=key)
        asked = client.get_object_attributes(Bucket=bucket, Key=key, ObjectAttributes=["Checksum"])
        assert asked["Checksum"] == {name: checksum(algorithm, body), "ChecksumType": "FULL_OBJECT"}
    wrong = {name: checksum(algorithm, b"other")}
    assert answer_of(client.put_object, Bucket=bucket, Key="wrong", Body=body, **wrong) == (400, "BadDigest")
    assert answer_of(client.head_object, Bucket=bucket, Key="wrong") == (404, "404")
    assert code_of(client.put_object, Bucket=bucket, Key="wrong", Body=body, **{name: "short"}) == "InvalidRequest"


def test_a_copy_keeps_the_checksum_or_gets_another(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"1", ChecksumAlgorithm="SHA1")
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/k"}
    assert client.copy_object(**copy)["CopyObjectResult"]["ChecksumSHA1"] == checksum("SHA1", b"1")
    made = client.copy_object(**copy, ChecksumAlgorithm="CRC32C")["CopyObjectResult"]
    assert (made["ChecksumCRC32C"], "ChecksumSHA1" in made) == (checksum("CRC32C", b"1"), False)


def expected_checksum(algorithm: str, kind: str) -> str:
    if kind == "FULL_OBJECT":
        return checksum(algorithm, b"".join(BODIES))
    digests = b"".join(base64.b64decode(checksum(algorithm, body)) for body in BODIES)
    return f"{checksum(algorithm, digests)}-{len(BODIES)}"


KINDS = [
    ("CRC32", "COMPOSITE"),
    ("CRC32", "FULL_OBJECT"),
    ("CRC32C", "COMPOSITE"),
    ("CRC32C", "FULL_OBJECT"),
    ("CRC64NVME", "FULL_OBJECT"),
    ("SHA1", "COMPOSITE"),
    ("SHA256", "COMPOSITE"),
]


@pytest.mark.parametrize(("algorithm", "kind"), KINDS)
def test_checksums_of_multipart_uploads(client: Any, bucket: str, algorithm: str, kind: str) -> None:
    lists_checksums = kind == "COMPOSITE"  # else the parts are listed by their ETags alone
    name, named = f"Checksum{algorithm}", {"Bucket": bucket, "Key": "k"}
    begun = client.create_multipart_upload(**named, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (begun["ChecksumAlgorithm"], begun["ChecksumType"]) == (algorithm, kind)
    upload = {**named, "UploadId": begun["UploadId"]}
    parts = []
    for number, body in enumerate(BODIES, 1):
        made = client.upload_part(**upload, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        assert made[name] == checksum(algorithm, body)
        part = {"PartNumber": number, "ETag": made["ETag"]}
        parts.append(part | {name: made[name]} if lists_checksums else part)
    assert [one[name] for one in client.list_parts(**upload)["Parts"]] == [checksum(algorithm, one) for one in BODIES]
    wrong = {"Parts": [parts[0] | {name: checksum(algorithm, b"x")}, parts[1]]}
    assert code_of(client.complete_multipart_upload, **upload, MultipartUpload=wrong) == "InvalidPart"
    given = {name: checksum(algorithm, b"x"), "ChecksumType": kind}
    asked = {**upload, "MultipartUpload": {"Parts": parts}}
    assert code_of(client.complete_multipart_upload, **asked, **given) == "BadDigest"
    made = client.complete_multipart_upload(**asked, **{name: expected_checksum(algorithm, kind)})
    assert (made[name], made["ChecksumType"]) == (expected_checksum(algorithm, kind), kind)
    head = client.head_object(**named, ChecksumMode="ENABLED")
    assert (head[name], head["ChecksumType"]) == (expected_checksum(algorithm, kind), kind)
    listed = client.get_object_attributes(**named, ObjectAttributes=["Checksum", "ObjectParts"])
    assert listed["Checksum"] == {name: expected_checksum(algorithm, kind), "ChecksumType": kind}
    assert [one[name] for one in listed["ObjectParts"]["Parts"]] == [checksum(algorithm, one) for one in BODIES]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("SHA256", "FULL_OBJECT"), ("SHA1", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), (None, "COMPOSITE")],
)
def test_kinds_of_checksums_that_cannot_be(client: Any, bucket: str, algorithm: str | None, kind: str) -> None:
    asked = {"ChecksumType": kind} | ({"ChecksumAlgorithm": algorithm} if algorithm else {})
    made = answer_of(client.create_multipart_upload, Bucket=bucket, Key="k", **asked)
    assert made == (400, "InvalidRequest")


def test_a_part_has_the_uploads_algorithm(client: Any, bucket: str) -> None:
    upload = client.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="SHA256")["UploadId"]
    named = {"Bucket": bucket, "Key": "k", "UploadId": upload, "PartNumber": 1, "Body": b"1"}
    assert code_of(client.upload_part, **named, ChecksumAlgorithm="CRC32C") == "InvalidRequest"
