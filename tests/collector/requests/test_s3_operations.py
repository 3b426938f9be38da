"""The names of S3's operations, against the service's model in botocore and against a table of requests."""

from typing import Any

import pytest
from botocore.loaders import Loader

from collector.requests.s3_operations import operation

OTHER_NAMES = {
    "GetBucketLifecycle": ("GetBucketLifecycleConfiguration", "the older form of the same request"),
    "PutBucketLifecycle": ("PutBucketLifecycleConfiguration", "likewise"),
    "GetBucketNotification": ("GetBucketNotificationConfiguration", "likewise"),
    "PutBucketNotification": ("PutBucketNotificationConfiguration", "likewise"),
    "ListDirectoryBuckets": ("ListBuckets", "the same request, to another endpoint"),
    "WriteGetObjectResponse": ("PostObject", "goes to a host of Object Lambda, which no bucket's name has"),
}
"""Operations whose request is also another's: the name that is given, and the reason."""


MODEL: dict[str, Any] = Loader().load_service_model("s3", "service-2", "2006-03-01")


def request_of(name: str, optional: bool) -> tuple[str, str, bool, bool, bool]:
    """Method, query, whether there are a bucket and a key, and whether it copies.

    Arguments: `optional`, whether parameters that may be absent are there.
    """
    described = MODEL["operations"][name]
    shape = MODEL["shapes"][described["input"]["shape"]] if "input" in described else {"members": {}}
    required = shape.get("required", ())
    path, _, query = described["http"]["requestUri"].partition("?")
    parameters = [query] if query else []
    parameters += [
        f"{member['locationName']}=1"
        for key, member in shape["members"].items()
        if member.get("location") == "querystring" and (optional or key in required)
    ]
    return described["http"]["method"], "&".join(parameters), path != "/", "{Key+}" in path, "CopySource" in required


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("name", MODEL["operations"])
def test_each_operation_of_the_model_has_its_name(name: str, optional: bool) -> None:
    method, query, has_bucket, has_key, copies = request_of(name, optional)
    found = operation(method, query, has_bucket=has_bucket, has_key=has_key, copies=copies)
    assert found == OTHER_NAMES.get(name, (name,))[0]


REQUESTS = [
    ("GET /", "", "ListBuckets"),
    ("GET /", "list-type=2", None),  # about a bucket, of which the path says nothing
    ("POST /", "", None),  # STS or IAM
    ("GET /b", "", "ListObjects"),
    ("GET /b", "prefix=&delimiter=%2F", "ListObjects"),
    ("GET /b", "list-type=2&prefix=", "ListObjectsV2"),
    ("GET /b", "newer", None),
    ("PUT /b", "uploadId=1&partNumber=2", None),
    ("GET /b/k", "partNumber=2", "GetObject"),
    ("GET /b/k", "x-id=GetObject&versionId=", "GetObject"),
    ("PUT /b/k", "partNumber=2&uploadId=x", "UploadPart"),
    ("PUT /b/k", "uploadId=x&partNumber=2&x-id=UploadPart", "UploadPart"),
    ("PUT /b/k", "tagging=", "PutObjectTagging"),
    ("POST /b", "", "PostObject"),
    ("POST /b", "uploads", None),
    ("PUT /b", "location", None),
    ("HEAD /b/k", "partNumber=2", "HeadObject"),
    ("OPTIONS /b/k", "", None),
    ("REPLICATE /b/k", "", None),
]


@pytest.mark.parametrize(("request_line", "query", "expected"), REQUESTS)
def test_a_request_has_the_name_that_its_method_path_and_query_give(
    request_line: str, query: str, expected: str | None
) -> None:
    method, _, path = request_line.partition(" /")
    bucket, _, key = path.partition("/")
    assert operation(method, query, has_bucket=bool(bucket), has_key=bool(key)) == expected
