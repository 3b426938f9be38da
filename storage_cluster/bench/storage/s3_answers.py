"""What S3 answers in XML, as far as the load generator needs it; entities and document types are refused."""

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring


class Page(NamedTuple):
    """A part of a listing."""

    sizes: dict[str, int]  # in bytes, by key
    next_token: str  # "" after the last


def error_code(body: bytes) -> str:
    """The code of an error (`SlowDown`, …); "" if the body is none."""
    root = _parse(body)
    return _text(root, "Code") if root is not None and _name(root) == "Error" else ""


def upload_id(body: bytes) -> str:
    """Of a multipart upload that was created; "" if there is none."""
    root = _parse(body)
    return _text(root, "UploadId") if root is not None else ""


def listing(body: bytes) -> Page | None:
    """A page of ListObjectsV2, asked for with `encoding-type=url`; None if it is something else."""
    root = _parse(body)
    if root is None or _name(root) != "ListBucketResult":
        return None
    is_encoded = _text(root, "EncodingType") == "url"
    sizes = {_text(entry, "Key"): int(_text(entry, "Size") or 0) for entry in _children(root, "Contents")}
    if is_encoded:
        sizes = {unquote_plus(key): size for key, size in sizes.items()}
    is_cut = _text(root, "IsTruncated") == "true"
    return Page(sizes, _text(root, "NextContinuationToken") if is_cut else "")


def _parse(body: bytes) -> Element | None:
    try:
        return fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException):
        return None


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if _name(child) == name)


def _text(element: Element, name: str) -> str:
    return next((child.text or "" for child in _children(element, name)), "")
