"""Who owns the objects of a bucket: who writes them, or the bucket's owner (`ObjectOwnership`).

    ObjectWriter            who writes an object owns it; so it is without a setting
    BucketOwnerPreferred    the bucket's owner, where the writer gives `bucket-owner-full-control`
    BucketOwnerEnforced     the bucket's owner, always; access lists count for nothing and cannot be changed

Source: Amazon S3 user guide, "Controlling ownership of objects and disabling ACLs for your bucket".
"""

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from storage_cluster.servers.s3.documents import DocumentError, child_text, element, parse
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import GRANT_HEADERS, Acl, private

WRITER, PREFERRED, ENFORCED = "ObjectWriter", "BucketOwnerPreferred", "BucketOwnerEnforced"
HEADER = "x-amz-object-ownership"
_FULL_CONTROL = "bucket-owner-full-control"


def ownership_in_header(headers: Mapping[str, str]) -> str | None:
    """The setting that comes with a bucket's creation. Raises: S3Error for one that there is not."""
    return None if HEADER not in headers else _check_setting(headers[HEADER])


def ownership_in_document(text: bytes) -> str:
    """The setting in an `OwnershipControls` document. Raises: S3Error (MalformedXML)."""
    try:
        rules = parse(text, "OwnershipControls").findall("Rule")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    if len(rules) != 1:
        raise S3Error("MalformedXML")
    return _check_setting(child_text(rules[0], "ObjectOwnership") or "")


def ownership_document(setting: str) -> Element:
    """The setting as a document's root."""
    return element("OwnershipControls", element("Rule", element("ObjectOwnership", setting)))


def owner_of_new(setting: str, headers: Mapping[str, str], writer: str, bucket_owner: str) -> str:
    """Who will own an object that a request with these headers writes."""
    given = headers.get("x-amz-acl") == _FULL_CONTROL
    return bucket_owner if setting == ENFORCED or (setting == PREFERRED and given) else writer


def check_headers(setting: str, headers: Mapping[str, str]) -> None:
    """Raises: S3Error (AccessControlListNotSupported) if a write gives an access list where there are none."""
    canned = headers.get("x-amz-acl", _FULL_CONTROL)
    if setting == ENFORCED and (canned != _FULL_CONTROL or any(name in headers for name in GRANT_HEADERS)):
        raise S3Error("AccessControlListNotSupported")


def in_force(setting: str, acl: Acl, bucket_owner: str) -> Acl:
    """What counts of a list."""
    return private(bucket_owner) if setting == ENFORCED else acl


def _check_setting(text: str) -> str:
    if text not in (WRITER, PREFERRED, ENFORCED):
        raise S3Error("MalformedXML")
    return text
