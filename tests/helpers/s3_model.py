"""Random sequences of requests to an S3 store, and an obviously right model in memory that says what must come of them.

A bucket is, by key, its versions from the newest: id and bytes; None in their place is a delete marker. Where versions
were never switched on there is one version at most, `null`.
"""

import random
from typing import Any

from tests.helpers.s3_answers import answer_of

KEYS = ("a", "b/1", "b/2", "c")
Versions = list[tuple[str, bytes | None]]


class Model:
    """What a bucket holds."""

    def __init__(self) -> None:
        self.status: str | None = None
        self.versions: dict[str, Versions] = {key: [] for key in KEYS}

    def current(self, key: str) -> bytes | None:
        """The bytes that a GET returns; None: there is nothing."""
        return self.versions[key][0][1] if self.versions[key] else None

    def write(self, key: str, version_id: str, body: bytes | None) -> None:
        """A version or marker becomes the newest; a `null` replaces the one before."""
        if version_id == "null":
            self.remove(key, "null")
        self.versions[key].insert(0, (version_id, body))

    def remove(self, key: str, version_id: str) -> None:
        """A version is gone for good."""
        self.versions[key] = [one for one in self.versions[key] if one[0] != version_id]

    def delete(self, key: str, version_id: str) -> None:
        """A DELETE that names no version. `version_id`: of the marker."""
        if self.status is None:
            self.remove(key, "null")
        else:
            self.write(key, version_id, None)


class Sequence:
    """A seeded sequence of requests to one bucket."""

    def __init__(self, client: Any, bucket: str, seed: int) -> None:
        self._client = client
        self._bucket = bucket
        self._random = random.Random(seed)
        self._model = Model()
        self._count = 0

    def run(self, step_count: int) -> None:
        """Do so many requests, and compare what the bucket shows after each."""
        operations = [self._put, self._put, self._copy, self._delete, self._delete_version, self._complete]
        operations += [self._delete_many, self._switch]
        for _ in range(step_count):
            operation = self._random.choice(operations)
            operation(self._random.choice(KEYS))
            assert self._listed_versions() == self._model.versions, operation.__name__
            self._compare_key(self._random.choice(KEYS))
        self._compare_listing()

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": key}

    def _body(self) -> bytes:
        self._count += 1
        return b"%d" % self._count * self._random.randrange(3)

    def _put(self, key: str) -> None:
        body = self._body()
        made = self._client.put_object(**self._place(key), Body=body)
        self._model.write(key, made.get("VersionId", "null"), body)

    def _copy(self, key: str) -> None:
        source = self._random.choice(KEYS)
        readable = [one for one in self._model.versions[source] if one[1] is not None]
        if not readable:
            return
        version_id, body = self._random.choice(readable)
        named = self._place(source) | {"VersionId": version_id}
        made = self._client.copy_object(**self._place(key), CopySource=named, MetadataDirective="REPLACE")
        self._model.write(key, made.get("VersionId", "null"), body)

    def _complete(self, key: str) -> None:
        body = self._body()
        upload = self._place(key) | {"UploadId": self._client.create_multipart_upload(**self._place(key))["UploadId"]}
        etag = self._client.upload_part(**upload, PartNumber=3, Body=body)["ETag"]
        if self._random.random() < 0.2:
            self._client.abort_multipart_upload(**upload)
            return
        parts = {"Parts": [{"PartNumber": 3, "ETag": etag}]}
        made = self._client.complete_multipart_upload(**upload, MultipartUpload=parts)
        self._model.write(key, made.get("VersionId", "null"), body)

    def _delete(self, key: str) -> None:
        made = self._client.delete_object(**self._place(key))
        self._model.delete(key, made.get("VersionId", "null"))

    def _delete_version(self, key: str) -> None:
        if self._model.versions[key]:
            version_id = self._random.choice(self._model.versions[key])[0]
            self._client.delete_object(**self._place(key), VersionId=version_id)
            self._model.remove(key, version_id)

    def _delete_many(self, _: str) -> None:
        keys = self._random.sample(KEYS, 2)
        asked = {"Objects": [{"Key": key} for key in keys]}
        for one in self._client.delete_objects(Bucket=self._bucket, Delete=asked)["Deleted"]:
            self._model.delete(one["Key"], one.get("DeleteMarkerVersionId", "null"))

    def _switch(self, _: str) -> None:
        if self._random.random() < 0.5:
            self._model.status = self._random.choice(("Enabled", "Suspended"))
            status = {"Status": self._model.status}
            self._client.put_bucket_versioning(Bucket=self._bucket, VersioningConfiguration=status)

    def _listed_versions(self) -> dict[str, Versions]:
        """What the listing of versions shows, with the bytes that the model has for each."""
        found = self._client.list_object_versions(Bucket=self._bucket)
        entries = [(one, False) for one in found.get("Versions", [])]
        entries += [(one, True) for one in found.get("DeleteMarkers", [])]
        listed: dict[str, Versions] = {key: [] for key in KEYS}
        for key in KEYS:
            mine = {one["VersionId"]: (one, marker) for one, marker in entries if one["Key"] == key}
            in_order = [name for name, _ in self._model.versions[key] if name in mine]
            in_order += [name for name in mine if name not in in_order]
            latest = [name for name, (one, _) in mine.items() if one["IsLatest"]]
            assert latest == in_order[:1]
            bodies = dict(self._model.versions[key])
            listed[key] = [(name, None if mine[name][1] else bodies.get(name, b"?")) for name in in_order]
        return listed

    def _compare_key(self, key: str) -> None:
        body = self._model.current(key)
        if body is None:
            assert answer_of(self._client.get_object, **self._place(key)) == (404, "NoSuchKey")
        else:
            assert self._client.get_object(**self._place(key))["Body"].read() == body
            assert self._client.head_object(**self._place(key))["ContentLength"] == len(body)
        for version_id, old in self._model.versions[key]:
            if old is not None:
                named = self._place(key) | {"VersionId": version_id}
                assert self._client.get_object(**named)["Body"].read() == old

    def _compare_listing(self) -> None:
        here = [key for key in KEYS if self._model.current(key) is not None]
        found = self._client.list_objects_v2(Bucket=self._bucket, Delimiter="/")
        assert [one["Key"] for one in found.get("Contents", [])] == [key for key in here if "/" not in key]
        assert len(found.get("CommonPrefixes", [])) == any("/" in key for key in here)
