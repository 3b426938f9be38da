"""A known list of S3 operations: `python -m benchmarks.real_systems.s3_client URL ACCESS_KEY SECRET_KEY FOLDER`.

Prints a line of JSON for each request: the operation, bucket, key, part and upload as boto3 knows them, and the id of
the answer. One object goes up as `aws-chunked` with signed chunks, by the load generator's own client, since boto3 does
that over TLS only. Further objects go up and come down by s3cmd and rclone, if they are installed; of these only the
names of the requests are known, without ids.
"""

import asyncio
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from storage_cluster.bench.engine.connection import Connection
from storage_cluster.bench.model import Kind, StorageConfig
from storage_cluster.bench.storage import Order
from storage_cluster.bench.storage.s3 import S3
from storage_cluster.bench.storage.s3_options import read_options

BUCKET, OTHER = "judge-photos", "judge-other"
PART_BYTES = 5 << 20
PARTS = 4
TAGS = {"TagSet": [{"Key": "a", "Value": "b"}]}
_LOCK = threading.Lock()


def main(url: str, access_key: str, secret_key: str, folder: str) -> None:
    """Do all operations, one after the other but for the parts of one upload."""
    signed = _client(url, access_key, secret_key)
    _buckets_and_objects(signed)
    _uploads(signed)
    _anonymous(url, signed)
    asyncio.run(_put_in_chunks(url, access_key, secret_key))
    _other_clients(url, access_key, secret_key, Path(folder))
    _end(signed)


def _client(url: str, access_key: str, secret_key: str, signature: Any = "s3v4") -> Any:
    config = Config(
        s3={"addressing_style": "path"}, retries={"max_attempts": 0}, signature_version=signature,
        request_checksum_calculation="when_required", response_checksum_validation="when_required",
    )  # fmt: skip
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=access_key, aws_secret_access_key=secret_key,
        region_name="us-east-1", config=config,
    )  # fmt: skip
    client.meta.events.register("before-parameter-build.s3", _note_parameters)
    client.meta.events.register("after-call.s3", _log)
    return client


def _note_parameters(params: Any, context: Any, **_: Any) -> None:
    context["judged"] = params


def _log(model: Any, parsed: Any, context: Any, **_: Any) -> None:
    params = context["judged"]
    upload = params.get("UploadId") or (parsed.get("UploadId") if model.name == "CreateMultipartUpload" else None)
    said = parsed["ResponseMetadata"]["HTTPHeaders"]
    _print(
        model.name, params.get("Bucket"), params.get("Key"), params.get("PartNumber"), upload, said["x-amz-request-id"]
    )


def _print(operation: str, bucket: str | None, key: str | None, part: int | None, upload: str | None, id_: str) -> None:
    line = {"operation": operation, "bucket": bucket, "object_key": key, "part": part, "upload": upload, "id": id_}
    with _LOCK:
        print(json.dumps(line), flush=True)


def _buckets_and_objects(s3: Any) -> None:
    here: dict[str, Any] = {"Bucket": BUCKET}
    cat: dict[str, Any] = here | {"Key": "pets/cat & dog.jpg"}
    s3.list_buckets()
    s3.create_bucket(**here)
    s3.create_bucket(Bucket=OTHER)
    s3.head_bucket(**here)
    s3.get_bucket_location(**here)
    s3.put_bucket_versioning(**here, VersioningConfiguration={"Status": "Enabled"})
    s3.get_bucket_versioning(**here)
    s3.put_object(**cat, Body=b"x" * 3000, Metadata={"a": "b"})
    s3.head_object(**cat)
    s3.get_object(**cat)["Body"].read()
    s3.get_object(**cat, Range="bytes=1-9")["Body"].read()
    s3.copy_object(Bucket=OTHER, Key="ä", CopySource=cat)
    s3.put_object_tagging(**cat, Tagging=TAGS)
    s3.get_object_tagging(**cat)
    s3.delete_object_tagging(**cat)
    s3.put_object_acl(**cat, ACL="public-read")
    s3.get_object_acl(**cat)
    s3.get_bucket_acl(**here)
    s3.list_objects(**here, Prefix="", Delimiter="/")
    s3.list_objects_v2(**here, MaxKeys=1)
    s3.list_object_versions(**here)
    lifecycle = {"Rules": [{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "x"}, "Expiration": {"Days": 9}}]}
    s3.put_bucket_lifecycle_configuration(**here, LifecycleConfiguration=lifecycle)
    s3.get_bucket_lifecycle_configuration(**here)
    s3.delete_bucket_lifecycle(**here)
    cors = {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}
    s3.put_bucket_cors(**here, CORSConfiguration=cors)
    s3.get_bucket_cors(**here)
    s3.delete_bucket_cors(**here)
    with contextlib.suppress(ClientError):
        s3.get_bucket_policy(**here)
    with contextlib.suppress(ClientError):
        s3.head_object(**here, Key="nothing")
    presigned = s3.generate_presigned_url("get_object", cat)
    _plain(presigned, "GetObject", BUCKET, cat["Key"])


def _uploads(s3: Any) -> None:
    big = {"Bucket": BUCKET, "Key": "big.bin"}
    parallel = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=PARTS)
    s3.upload_fileobj(io.BytesIO(b"y" * (PARTS * PART_BYTES - 9)), **big, Config=parallel)
    s3.upload_fileobj(io.BytesIO(b"z" * (2 * PART_BYTES)), **big, Config=parallel)
    copied = {"Bucket": OTHER, "Key": "copied.bin"}
    named = copied | {"UploadId": s3.create_multipart_upload(**copied)["UploadId"]}
    s3.upload_part_copy(**named, PartNumber=1, CopySource=big, CopySourceRange="bytes=0-5242879")
    s3.list_parts(**named)
    s3.list_multipart_uploads(Bucket=OTHER)
    s3.abort_multipart_upload(**named)


def _anonymous(url: str, signed: Any) -> None:
    """What anybody may read: only the answer shows that it is S3."""
    everybody = {"Bucket": BUCKET, "Key": "public.txt"}
    signed.put_object(**everybody, Body=b"p", ACL="public-read")
    _client(url, "", "", UNSIGNED).get_object(**everybody)["Body"].read()


def _plain(url: str, operation: str, bucket: str, key: str) -> None:
    done = subprocess.run(
        ["curl", "-sS", "-D", "-", "-o", "/dev/null", url], capture_output=True, text=True, check=True
    )
    ids = [
        line.split(":", 1)[1].strip()
        for line in done.stdout.splitlines()
        if line.lower().startswith("x-amz-request-id")
    ]
    _print(operation, bucket, key, None, None, ids[0])


async def _put_in_chunks(url: str, access_key: str, secret_key: str) -> None:
    options = {"endpoint": url, "access_key": access_key, "secret_key": secret_key, "payload": "chunked"}
    storage = S3(read_options(StorageConfig("s3", tuple(options.items()))))
    request = storage.request(Order(Kind.WRITE, BUCKET, "chunked.bin", 300_000))
    connection = Connection(storage.endpoint)
    reply = await connection.exchange(request.head, request.body, kept=True)
    connection.close()
    assert reply.status == 200, reply.status
    _print("PutObject", BUCKET, "chunked.bin", None, None, reply.transaction_id)


def _other_clients(url: str, access_key: str, secret_key: str, folder: Path) -> None:
    source = folder / "source.bin"
    source.write_bytes(b"s" * (6 << 20))
    if program := shutil.which("s3cmd"):
        settings = folder / "s3cfg"
        host = url.removeprefix("http://")
        lines = ("[default]", f"access_key = {access_key}", f"secret_key = {secret_key}", f"host_base = {host}",
                 f"host_bucket = {host}", "use_https = False", "signature_v2 = False")  # fmt: skip
        settings.write_text("\n".join(lines), "utf-8")
        _run(
            program, "-c", str(settings), "put", "--multipart-chunk-size-mb=5", str(source), f"s3://{BUCKET}/s3cmd.bin"
        )
        parts = [("UploadPart", number) for number in (1, 2)]
        for operation, part in (("CreateMultipartUpload", None), *parts, ("CompleteMultipartUpload", None)):
            _print(operation, BUCKET, "s3cmd.bin", part, "s3cmd", "")
    if program := shutil.which("rclone"):
        remote = f":s3,provider=Other,endpoint='{url}',access_key_id='{access_key}',secret_access_key='{secret_key}':"
        more = ("--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M", "--config", "/dev/null", "--s3-no-check-bucket")
        _run(program, *more, "copyto", str(source), f"{remote}{BUCKET}/rclone.bin")
        for operation, part in (("CreateMultipartUpload", None), *parts, ("CompleteMultipartUpload", None)):
            _print(operation, BUCKET, "rclone.bin", part, "rclone", "")


def _run(*argv: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}  # rclone takes none
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{argv[0]}: {done.stderr[-500:]}")


def _end(s3: Any) -> None:
    names = [{"Key": one["Key"]} for one in s3.list_objects_v2(Bucket=OTHER).get("Contents", [])]
    s3.delete_objects(Bucket=OTHER, Delete={"Objects": names})
    s3.delete_bucket(Bucket=OTHER)
    s3.delete_object(Bucket=BUCKET, Key="public.txt")


if __name__ == "__main__":
    main(*sys.argv[1:])
