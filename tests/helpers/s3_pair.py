"""The same random requests to two S3 stores, and their answers without what no two stores have in common.

Stores number versions and uploads in their own ways, so a request names them by their place in a listing, and each
store is asked for what it has there. Of an answer all is compared but times and owners; of ids and tokens it counts
whether they are there. `RGW_DIFFERS` is what Ceph's RGW 16.2.15 answers otherwise than Amazon's documents say; what it
does otherwise to the state of a bucket is not asked:

    deleting                 makes no marker for a key that is not there; so only keys that are there are named
    completing an upload     needs all its parts, not some; so all are named
    copying what parts made  takes over its ETag; so it is never copied, nor are there two uploads for a key
    copying with new values  drops the tags, too; so they are always replaced together
    suspending versions      loses an object whose `null` is written a second time; so versions stay enabled
    reading a delete marker  is 404 whatever the conditions; so versions are read without any
    listing versions         after a key also shows that key's `null`; so no key is named
    listing with delimiters  after a key inside a common prefix does not show that prefix; so no such key is named
"""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

KEYS = ("a", "b/1", "b/2", "c", "\u00fc x", "b")
UPLOAD_KEYS = ("m", "m/1")
BODIES = (b"", b"1", b"some text", b"x" * 70_000)
RANGES = ("bytes=0-0", "bytes=2-", "bytes=-3", "bytes=100000-", "bytes=1-5")
TAGS = (
    {},
    {"k": "v"},
    {"k": "v", "k2": ""},
    {str(number): "v" for number in range(11)},
    {"k" * 129: "v"},
    {"k": "v" * 257},
)
TYPES = (None, "text/plain", "application/x-thing; charset=utf-8")
_IDS = ("VersionId", "UploadId", "CopySourceVersionId", "VersionIdMarker", "NextVersionIdMarker", "NextUploadIdMarker")
_TOKENS = ("DeleteMarkerVersionId", "ContinuationToken", "NextContinuationToken", "UploadIdMarker")
_HIDDEN = {"LastModified", "Initiated", "Owner", "Initiator", "DisplayName", "ResponseMetadata", "Location"}

RGW_DIFFERS: dict[str, dict[str, str]] = {
    "read": {"405": "reading a delete marker by its id is 404"},
    "copy": {"ETag": "without quotes", "CopySourceVersionId": "not shown", "VersionId": "not shown"},
    "delete": dict.fromkeys(("DeleteMarker", "VersionId"), "not always shown"),
    "delete_version": dict.fromkeys(("DeleteMarker", "VersionId"), "not always shown"),
    "complete": {"ETag": "not shown"},
    "tag": {"VersionId": "not shown"},
    "tags": {"VersionId": "not shown"},
    "list": {"NextMarker": "also shown without a delimiter"},
    "uploads": dict.fromkeys(("KeyMarker", "NextKeyMarker"), "shown where it need not be, or the other way round")
    | dict.fromkeys(("NextUploadIdMarker", "UploadIdMarker", "Prefix"), "as before"),
    "switch": {"MFADelete": "shown though it was never set"},
    "setting": {"BucketRegion": "not shown", "LocationConstraint": "default, where Amazon's first region is empty"},
}
"""By request: the fields or codes that are left out of the comparison, and why."""

Ask = Callable[["Side"], Any]
"""A request to one of the stores."""


class Side:
    """One of the stores."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.bucket = bucket

    def version(self, key: str, place: int) -> dict[str, str]:
        """The parameter that names the version at a place in the listing of a key; {} if there is none."""
        found = self.client.list_object_versions(Bucket=self.bucket, Prefix=key)
        listed = [one for one in found.get("Versions", []) + found.get("DeleteMarkers", []) if one["Key"] == key]
        listed.sort(key=lambda one: one["VersionId"] == "null")
        return {"VersionId": listed[place % len(listed)]["VersionId"]} if listed else {}

    def upload(self, place: int) -> dict[str, str] | None:
        """Key and id of the upload at a place in the listing; None if there is none."""
        listed = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        one = listed[place % len(listed)] if listed else None
        return one and {"Key": one["Key"], "UploadId": one["UploadId"]}

    def answer(self, ask: Ask) -> Any:
        """What it answers, to be compared."""
        try:
            found = ask(self)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return status, error.response["Error"]["Code"]
        if isinstance(found, Mapping) and "Body" in found:
            found = {**found, "Body": found["Body"].read()}
        return comparable(found)


def is_same(what: str, ours: Any, theirs: Any) -> bool:
    """Whether RGW answers a request as we do, but for how it differs from what is documented."""
    differs = RGW_DIFFERS.get(what, {})
    if isinstance(ours, tuple) and (str(ours[0]) in differs or ours[1] in differs):
        return True
    if what == "complete" and isinstance(ours, tuple) and isinstance(theirs, tuple):
        return ours[0] == theirs[0]  # which of several errors comes first, is not documented
    return _without(ours, set(differs)) == _without(theirs, set(differs))


def _without(answer: Any, names: set[str]) -> Any:
    """An answer without fields of these names, and without the ETags of its entries, which RGW may not know yet."""
    if isinstance(answer, list):
        return [_without(one, {*names, "ETag"}) for one in answer]
    if isinstance(answer, dict):
        return {name: _without(value, names) for name, value in answer.items() if name not in names}
    return answer


def comparable(answer: Any) -> Any:
    """An answer without what differs between any two stores."""
    if isinstance(answer, list):
        return [comparable(one) for one in answer]
    if not isinstance(answer, Mapping):
        return answer
    made = {}
    for name, value in answer.items():
        if name in _IDS and value == "null":
            continue  # RGW does not always show it
        if name in _IDS or name in _TOKENS:
            made[name] = bool(value)
        elif name not in _HIDDEN:
            made[name] = comparable(value)
    return made


class Requests:
    """A seeded sequence of requests."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = itertools.count()

    def next(self) -> tuple[str, Ask]:
        """The next request, and what it is."""
        made = self._random.choice(
            [self._put] * 4
            + [self._read] * 5
            + [self._copy, self._copy, self._delete, self._delete_version, self._delete_many]
            + [self._begin, self._part, self._part, self._complete, self._complete, self._abort, self._parts]
            + [self._list, self._list, self._list_v2, self._list_v2, self._versions, self._versions, self._uploads]
            + [self._tag, self._tags, self._switch, self._setting]
        )
        return made.__name__.strip("_"), made()

    def _key(self) -> str:
        return self._random.choice(KEYS)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _put(self) -> Ask:
        given: dict[str, Any] = {"Key": self._key(), "Body": self._random.choice(BODIES)}
        if self._chance(0.3):
            given["Metadata"] = {"number": str(next(self._count))}
        if kind := self._random.choice(TYPES):
            given["ContentType"] = kind
        if self._chance(0.2):
            given |= {"CacheControl": "no-cache", "ContentDisposition": "attachment", "ContentLanguage": "de"}
        if self._chance(0.2):
            given["Tagging"] = self._random.choice(("k=v", "k=v&k2="))
        return lambda side: side.client.put_object(Bucket=side.bucket, **given)

    def _read(self) -> Ask:
        key, name = (
            self._random.choice(KEYS + UPLOAD_KEYS),
            self._random.choice(("get_object", "get_object", "head_object")),
        )
        given: dict[str, Any] = {}
        if self._chance(0.4):
            given["Range"] = self._random.choice(RANGES)
        place = self._random.randrange(3) if self._chance(0.3) else None
        if place is None and self._chance(0.3):
            given[self._random.choice(("IfMatch", "IfNoneMatch"))] = self._random.choice(
                ('"d41d8cd98f00b204e9800998ecf8427e"', '"c4ca4238a0b923820dcc509a6f75849b"')
            )
        if self._chance(0.2) and name == "get_object":
            given["ResponseContentType"] = "text/x-other"

        def ask(side: Side) -> Any:
            version = {} if place is None else side.version(key, place)
            return getattr(side.client, name)(Bucket=side.bucket, Key=key, **given, **version)

        return ask

    def _copy(self) -> Ask:
        key, source = self._random.sample(KEYS, 2)
        directive = self._random.choice(("COPY", "REPLACE"))
        given = {"MetadataDirective": directive, "TaggingDirective": directive}
        if directive == "REPLACE":
            given["ContentType"] = "text/copied"
        return lambda side: side.client.copy_object(
            Bucket=side.bucket, Key=key, CopySource={"Bucket": side.bucket, "Key": source}, **given
        )

    def _delete(self) -> Ask:
        key = self._key()

        def ask(side: Side) -> Any:
            listed = side.client.list_objects_v2(Bucket=side.bucket, Prefix=key, MaxKeys=1).get("Contents", [])
            if [one["Key"] for one in listed] != [key]:
                return None
            return side.client.delete_object(Bucket=side.bucket, Key=key)

        return ask

    def _delete_version(self) -> Ask:
        key, place = self._key(), self._random.randrange(4)
        return lambda side: side.client.delete_object(Bucket=side.bucket, Key=key, **side.version(key, place))

    def _delete_many(self) -> Ask:
        most, quiet = self._random.choice((1, 2)), self._chance(0.3)

        def ask(side: Side) -> Any:
            listed = side.client.list_objects_v2(Bucket=side.bucket, MaxKeys=most).get("Contents", [])
            asked = {"Objects": [{"Key": one["Key"]} for one in listed], "Quiet": quiet}
            done = side.client.delete_objects(Bucket=side.bucket, Delete=asked) if listed else {}
            return done | {"Deleted": sorted(done.get("Deleted", []), key=lambda one: str(one["Key"]))}

        return ask

    def _begin(self) -> Ask:
        key = self._random.choice(UPLOAD_KEYS)

        def ask(side: Side) -> Any:
            if side.client.list_multipart_uploads(Bucket=side.bucket, Prefix=key).get("Uploads"):
                return None
            return side.client.create_multipart_upload(Bucket=side.bucket, Key=key, ContentType="text/parts")

        return ask

    def _on_upload(self, ask: Callable[[Side, dict[str, str]], Any]) -> Ask:
        place = self._random.randrange(3)

        def ask_upload(side: Side) -> Any:
            upload = side.upload(place)
            return None if upload is None else ask(side, upload)

        return ask_upload

    def _part(self) -> Ask:
        number, body = self._random.choice((1, 2, 2)), self._random.choice(BODIES)
        return self._on_upload(
            lambda side, upload: side.client.upload_part(Bucket=side.bucket, **upload, PartNumber=number, Body=body)
        )

    def _parts(self) -> Ask:
        return self._on_upload(lambda side, upload: side.client.list_parts(Bucket=side.bucket, **upload, MaxParts=1))

    def _complete(self) -> Ask:
        wrong, backwards = self._chance(0.15), self._chance(0.15)

        def ask(side: Side, upload: dict[str, str]) -> Any:
            listed = side.client.list_parts(Bucket=side.bucket, **upload).get("Parts", [])
            etag = {"ETag": '"d41d8cd98f00b204e9800998ecf8427f"'} if wrong else {}
            parts = [{"PartNumber": one["PartNumber"], "ETag": one["ETag"]} | etag for one in listed]
            named = {"Parts": parts[::-1] if backwards else parts}
            return side.client.complete_multipart_upload(Bucket=side.bucket, **upload, MultipartUpload=named)

        return self._on_upload(ask)

    def _abort(self) -> Ask:
        return self._on_upload(lambda side, upload: side.client.abort_multipart_upload(Bucket=side.bucket, **upload))

    def _listing(self, after: str | None = None) -> dict[str, Any]:
        given: dict[str, Any] = {"MaxKeys": self._random.choice((0, 1, 2, 3, 1000))}
        if self._chance(0.4):
            given["Prefix"] = self._random.choice(("b", "b/", "nothing"))
        if self._chance(0.5):
            given["Delimiter"] = self._random.choice(("/", " ", "no"))
        if after and self._chance(0.3):
            given[after] = self._random.choice(("", "a", "b", "zzz") if "Delimiter" in given else KEYS)
        return given

    def _list(self) -> Ask:
        given = self._listing("Marker")
        return lambda side: side.client.list_objects(Bucket=side.bucket, **given)

    def _list_v2(self) -> Ask:
        given = self._listing("StartAfter")
        return lambda side: side.client.list_objects_v2(Bucket=side.bucket, **given)

    def _versions(self) -> Ask:
        given = self._listing()
        return lambda side: side.client.list_object_versions(Bucket=side.bucket, **given)

    def _uploads(self) -> Ask:
        most = self._random.choice((1, 2, 1000))
        return lambda side: side.client.list_multipart_uploads(Bucket=side.bucket, MaxUploads=most)

    def _tag(self) -> Ask:
        key, tags = self._key(), self._random.choice(TAGS)
        given = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        if self._chance(0.2):
            return lambda side: side.client.delete_object_tagging(Bucket=side.bucket, Key=key)
        return lambda side: side.client.put_object_tagging(Bucket=side.bucket, Key=key, Tagging=given)

    def _tags(self) -> Ask:
        key = self._key()
        return lambda side: side.client.get_object_tagging(Bucket=side.bucket, Key=key)

    def _switch(self) -> Ask:
        status = self._random.choice(("Enabled", None))
        if status is None:
            return lambda side: side.client.get_bucket_versioning(Bucket=side.bucket)
        return lambda side: side.client.put_bucket_versioning(
            Bucket=side.bucket, VersioningConfiguration={"Status": status}
        )

    def _setting(self) -> Ask:
        cors = {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["https://*.example"], "MaxAgeSeconds": 9}]}
        tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
        rules = {"Rules": [{"ID": "r", "Prefix": "none", "Status": "Enabled", "Expiration": {"Days": 9}}]}
        given: list[tuple[str, dict[str, Any]]] = [
            ("get_bucket_cors", {}),
            ("put_bucket_cors", {"CORSConfiguration": cors}),
            ("delete_bucket_cors", {}),
            ("get_bucket_tagging", {}),
            ("put_bucket_tagging", {"Tagging": tags}),
            ("delete_bucket_tagging", {}),
            ("get_bucket_lifecycle_configuration", {}),
            ("put_bucket_lifecycle_configuration", {"LifecycleConfiguration": rules}),
            ("delete_bucket_lifecycle", {}),
            ("get_bucket_policy", {}),
            ("get_bucket_location", {}),
            ("get_bucket_request_payment", {}),
            ("get_object_lock_configuration", {}),
            ("head_bucket", {}),
        ]
        name, arguments = self._random.choice(given)
        return lambda side: getattr(side.client, name)(Bucket=side.bucket, **arguments)
