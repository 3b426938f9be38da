"""Tags of buckets and objects: from documents and headers, kept as a query string, checked against S3's limits.

Source: Amazon S3 user guide, "Categorizing your storage using tags".
"""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode
from xml.etree import ElementTree as ET

from storage_cluster.servers.s3.documents import DocumentError, child_text, element, parse
from storage_cluster.servers.s3.errors import S3Error

OBJECT_TAGS_MAX = 10
BUCKET_TAGS_MAX = 50
_KEY_MAX_LEN, _VALUE_MAX_LEN = 128, 256
_ALLOWED = re.compile(r"[\w\s+\-=.:/@]*", re.UNICODE)

Tags = dict[str, str]


def tags_in_document(text: bytes, tags_max: int) -> Tags:
    """The tags in a `Tagging` document. Raises: S3Error."""
    try:
        root = parse(text, "Tagging")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    listed = root.find("TagSet")
    if listed is None:
        raise S3Error("MalformedXML")
    return _check_tags([(child_text(one, "Key"), child_text(one, "Value")) for one in listed.findall("Tag")], tags_max)


def tags_in_header(headers: Mapping[str, str]) -> Tags:
    """The tags that a request gives with an object (`x-amz-tagging`). Raises: S3Error."""
    pairs = parse_qsl(headers.get("x-amz-tagging", ""), keep_blank_values=True)
    if len(dict(pairs)) < len(pairs):
        raise S3Error("InvalidArgument", "The header 'x-amz-tagging' must not name a tag twice.")
    return _check_tags(pairs, OBJECT_TAGS_MAX)


def tags_text(tags: Tags) -> str:
    """As they are kept."""
    return urlencode(tags, quote_via=quote)


def kept_tags(text: str | None) -> Tags:
    """Tags that were kept."""
    return dict(parse_qsl(text or "", keep_blank_values=True))


def tags_document(tags: Tags) -> ET.Element:
    """Tags as a document's root."""
    listed = [element("Tag", element("Key", key), element("Value", value)) for key, value in tags.items()]
    return element("Tagging", element("TagSet", *listed))


def _check_tags(pairs: list[tuple[str, str]] | list[tuple[str | None, str | None]], tags_max: int) -> Tags:
    tags: Tags = {}
    for key, value in pairs:
        if key is None or value is None:
            raise S3Error("MalformedXML")
        if not key or len(key) > _KEY_MAX_LEN or not _ALLOWED.fullmatch(key) or key.lower().startswith("aws:"):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid")
        if len(value) > _VALUE_MAX_LEN or not _ALLOWED.fullmatch(value):
            raise S3Error("InvalidTag", "The TagValue you have provided is invalid")
        if key in tags:
            raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key")
        tags[key] = value
    if len(tags) > tags_max:
        raise S3Error("InvalidTag", f"There may be {tags_max} tags at most")
    return tags
