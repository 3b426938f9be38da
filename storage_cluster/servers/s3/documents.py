"""S3's XML documents: written from elements, read into elements without namespaces.

Keys may hold control characters, which XML 1.0 has no place for; S3 writes them as character references all the same,
and so do we. Documents that arrive are read with defusedxml, so entities and external references are refused.

Source: Amazon S3 API reference; XML 1.0 §2.2.
"""

import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

import defusedxml
from defusedxml.ElementTree import fromstring
from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Reply

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
DOCUMENT_MAX_BYTES = 1_048_576
"""Of what clients send; DeleteObjects with 1,000 keys of 1,024 bytes each, escaped, is the longest."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f]")

ET.register_namespace("xsi", XSI)


class DocumentError(Exception):
    """The bytes are no XML document, or one of another kind than was expected."""


def element(name: str, *content: "ET.Element | str | None", attributes: dict[str, str] | None = None) -> ET.Element:
    """An element with its text or children; None is left out."""
    made = ET.Element(name, attributes or {})
    for one in content:
        if isinstance(one, str):
            made.text = one
        elif one is not None:
            made.append(one)
    return made


def elements(name: str, texts: Iterable[str]) -> Iterator[ET.Element]:
    """An element of this name for each text."""
    return (element(name, text) for text in texts)


def optional(name: str, text: str | None) -> ET.Element | None:
    """An element, where there is a text for it."""
    return None if text is None else element(name, text)


def document(root: ET.Element, namespace: str | None = NAMESPACE) -> bytes:
    """The document as bytes."""
    if namespace:
        root.set("xmlns", namespace)
    text = ET.tostring(root, encoding="unicode").encode("utf-8", "surrogateescape")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + _CONTROL.sub(_as_reference, text)


def xml_reply(root: ET.Element, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """A reply with a document."""
    return Reply(status, CIMultiDict({**(headers or {}), "Content-Type": "application/xml"}), document(root))


def parse(text: bytes, root_name: str) -> ET.Element:
    """A document's root, its elements without namespaces. Raises: DocumentError."""
    try:
        root = fromstring(text, forbid_dtd=True)
    except (ET.ParseError, defusedxml.DefusedXmlException, ValueError) as error:
        raise DocumentError(str(error)) from None
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
    if root.tag != root_name:
        raise DocumentError(f"the document is a {root.tag}, not a {root_name}")
    return root


def child_text(parent: ET.Element, name: str) -> str | None:
    """The text of a child; None if there is no such child, "" if it is empty."""
    child = parent.find(name)
    return None if child is None else child.text or ""


def child_texts(parent: ET.Element, name: str) -> list[str]:
    """The texts of all children of a name."""
    return [child.text or "" for child in parent.findall(name)]


def _as_reference(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0] == b"\n" else b"&#x%x;" % found[0][0]
