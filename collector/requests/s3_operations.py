"""The name of an S3 operation, by its request: AWS's own names (`UploadPart`).

An operation follows from the method, from whether bucket and key are present, from the parameters of the query (a
subresource: `?uploads`, `?tagging`), and from `x-amz-copy-source`. The first rule that holds gives the name. Where the
request names a subresource that its method has not, or a parameter without a value that is not known here (a later
subresource), there is no name.

Limits: operations that share a request have one name (`GetBucketLifecycle` is `GetBucketLifecycleConfiguration`);
`GetObject` of an access point of Object Lambda is `GetObject`.
Source: Amazon S3 API Reference, 2006-03-01, "Actions"; `tests/collector/requests/test_s3_operations.py` holds every
operation of botocore's model against these tables.
"""

import re
from collections.abc import Mapping

_OF_BUCKETS: Mapping[str, str] = {
    "abac": "Abac",
    "accelerate": "AccelerateConfiguration",
    "acl": "Acl",
    "cors": "Cors",
    "encryption": "Encryption",
    "lifecycle": "LifecycleConfiguration",
    "logging": "Logging",
    "notification": "NotificationConfiguration",
    "ownershipControls": "OwnershipControls",
    "policy": "Policy",
    "replication": "Replication",
    "requestPayment": "RequestPayment",
    "tagging": "Tagging",
    "versioning": "Versioning",
    "website": "Website",
    "metadataConfiguration": "MetadataConfiguration",
    "metadataTable": "MetadataTableConfiguration",
}
"""Subresource to the end of the operations' names: `GetBucketAcl`, `PutBucketAcl`."""
_LISTED: Mapping[str, str] = {
    "analytics": "Analytics",
    "intelligent-tiering": "IntelligentTiering",
    "inventory": "Inventory",
    "metrics": "Metrics",
}
"""Likewise, of which a bucket has several, each with an `id`."""
_OF_OBJECTS: Mapping[str, str] = {
    "acl": "Acl",
    "tagging": "Tagging",
    "legal-hold": "LegalHold",
    "retention": "Retention",
}
_VERBS = (("GET", "Get"), ("PUT", "Put"), ("DELETE", "Delete"))

Rules = Mapping[str, tuple[tuple[frozenset[str], str], ...]]
"""Method to parameters that must all be present, and the name."""


def _rules(*lines: str) -> Rules:
    """Rules from lines `METHOD parameter … Name`."""
    found: dict[str, tuple[tuple[frozenset[str], str], ...]] = {}
    for line in lines:
        method, *parameters, name = line.split()
        found[method] = (*found.get(method, ()), (frozenset(parameters), name))
    return found


BUCKET = _rules(
    *(f"{method} {word} id {verb}Bucket{of}Configuration" for method, verb in _VERBS for word, of in _LISTED.items()),
    *(f"GET {word} ListBucket{of}Configurations" for word, of in _LISTED.items()),
    *(f"{method} {word} {verb}Bucket{of}" for method, verb in _VERBS[:2] for word, of in _OF_BUCKETS.items()),
    *(f"DELETE {word} DeleteBucket{of}" for word, of in {**_OF_BUCKETS, "lifecycle": "Lifecycle"}.items()),
    "POST metadataConfiguration CreateBucketMetadataConfiguration",
    "POST metadataTable CreateBucketMetadataTableConfiguration",
    "PUT metadataAnnotationTable UpdateBucketMetadataAnnotationTableConfiguration",
    "PUT metadataInventoryTable UpdateBucketMetadataInventoryTableConfiguration",
    "PUT metadataJournalTable UpdateBucketMetadataJournalTableConfiguration",
    "GET location GetBucketLocation",
    "GET object-lock GetObjectLockConfiguration",
    "PUT object-lock PutObjectLockConfiguration",
    "GET policyStatus GetBucketPolicyStatus",
    "GET publicAccessBlock GetPublicAccessBlock",
    "PUT publicAccessBlock PutPublicAccessBlock",
    "DELETE publicAccessBlock DeletePublicAccessBlock",
    "GET session CreateSession",
    "GET uploads ListMultipartUploads",
    "GET versions ListObjectVersions",
    "GET list-type ListObjectsV2",
    "POST delete DeleteObjects",
    "GET ListObjects",
    "HEAD HeadBucket",
    "PUT CreateBucket",
    "DELETE DeleteBucket",
    "POST PostObject",
)  # fmt: skip
"""Operations on a bucket; `PostObject` is the upload of a form."""
OBJECT = _rules(
    *(f"{method} {word} {verb}Object{of}" for method, verb in _VERBS for word, of in _OF_OBJECTS.items()),
    *(f"{method} annotation annotationName {verb}ObjectAnnotation" for method, verb in _VERBS),
    "GET annotation ListObjectAnnotations",
    "GET attributes GetObjectAttributes",
    "GET torrent GetObjectTorrent",
    "GET uploadId ListParts",
    "PUT encryption UpdateObjectEncryption",
    "PUT renameObject RenameObject",
    "PUT uploadId partNumber copy-source UploadPartCopy",
    "PUT uploadId partNumber UploadPart",
    "PUT copy-source CopyObject",
    "POST uploads CreateMultipartUpload",
    "POST uploadId CompleteMultipartUpload",
    "POST restore RestoreObject",
    "POST select SelectObjectContent",
    "DELETE uploadId AbortMultipartUpload",
    "GET GetObject",
    "HEAD HeadObject",
    "PUT PutObject",
    "DELETE DeleteObject",
)
SERVICE = _rules("GET ListBuckets")
COPY_SOURCE = "copy-source"
"""Stands for the header `x-amz-copy-source` among the parameters."""
_MAY_BE_EMPTY = frozenset(
    ("prefix", "delimiter", "marker", "max-keys", "encoding-type", "continuation-token", "start-after", "key-marker",
     "version-id-marker", "upload-id-marker", "versionId", "fetch-owner", "allow-unordered")
)  # fmt: skip
"""Parameters that clients also send without a value."""
_DETAILS = frozenset(("id", "annotationName", "partNumber", COPY_SOURCE))
"""Parameters in rules that are no subresources."""


def _subresources(rules: Rules) -> frozenset[str]:
    return frozenset(word for of in rules.values() for words, _ in of for word in words) - _DETAILS


_SUBRESOURCES = _subresources(BUCKET) | _subresources(OBJECT)
UPLOADS = ("CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload", "AbortMultipartUpload")


def operation(method: str, query: str, *, has_bucket: bool, has_key: bool, copies: bool = False) -> str | None:
    """The name of an operation; None if the request is none that is known.

    Arguments: `query`, without the `?`; of its values only whether they are empty counts.
    """
    given = [parameter.partition("=") for parameter in re.split("[&;]", query) if parameter]
    names = {name for name, _, _ in given}
    if any(not value and name not in _SUBRESOURCES | _MAY_BE_EMPTY for name, _, value in given):
        return None
    rules = OBJECT if has_bucket and has_key else BUCKET if has_bucket else SERVICE
    asked = names & _SUBRESOURCES
    names |= {COPY_SOURCE} if copies else set()
    holds = (
        name for needed, name in rules.get(method, ()) if needed <= names and (needed & _SUBRESOURCES or not asked)
    )
    return next(holds, None)
