"""Listings of a bucket, merged from those of both stores.

Each store is asked for a page as long as the one wanted. The first entries of both, in order of their names, are the
page: a store's page that is cut has as many entries as are wanted, all before those that it lacks.

A key that both have, since it is moving or since a kill left two copies, is shown once, as the store has it that it is
noted in. A key that is moving is never missing: see `placement`, step 2.

Both versions of the API are asked for in the first, whose markers may be a common prefix.

Source: Amazon S3 API reference, ListObjects, ListObjectsV2.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from storage_cluster.s3.signatures import Credentials, encode_query
from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.routing.endpoint import Endpoint, Outgoing
from storage_cluster.servers.routing.locations import STORES, Key
from storage_cluster.servers.s3.documents import child_text, element, optional, parse, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.listings import LIMIT_MAX, UrlEncoding, limit_of, name_in, token_of

_COPIED = ("LastModified", "ETag", "Size", "StorageClass", "Owner")


@dataclasses.dataclass(frozen=True)
class Entry:
    """An object or a common prefix in a store's listing."""

    name: str
    store: str
    found: Element
    """`Contents` or `CommonPrefixes`, its names encoded."""

    @property
    def is_object(self) -> bool:
        """Whether it is an object."""
        return self.found.tag == "Contents"


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of a listing."""

    entries: Sequence[Entry]
    is_truncated: bool

    @property
    def last_name(self) -> str | None:
        """Where the next page goes on; None if there is none."""
        return self.entries[-1].name if self.is_truncated and self.entries else None


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a client asks of a listing, in either version of the API."""

    query: Mapping[str, str]
    limit: int
    marker: str
    is_second: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """What a request asks for. Raises: S3Error."""
        is_second = query.get("list-type") == "2"
        token, after = query.get("continuation-token"), query.get("start-after", "")
        first = name_in(token) if token is not None else after
        return cls(
            query,
            limit_of(query.get("max-keys"), "max-keys"),
            first if is_second else query.get("marker", ""),
            is_second,
        )

    def parameters(self) -> dict[str, str]:
        """The same in the first version of the API."""
        given = {name: self.query[name] for name in ("prefix", "delimiter") if self.query.get(name)}
        return {**given, "marker": self.marker, "max-keys": str(self.limit)}


async def store_page(
    endpoint: Endpoint, bucket: str, parameters: Mapping[str, str], credentials: Credentials | None
) -> Page | Reply:
    """A page of one store's listing, or its reply if that is no page. Raises: S3Error."""
    query = encode_query({**parameters, "encoding-type": "url"}.items())
    reply = await endpoint.send(Outgoing("GET", bucket, query=query, credentials=credentials))
    document = await reply.read()
    if not reply.is_success:
        return reply
    root = parse(document, "ListBucketResult")
    entries = [_entry(one, "Key", endpoint.name) for one in root.findall("Contents")]
    entries += [_entry(one, "Prefix", endpoint.name) for one in root.findall("CommonPrefixes")]
    return Page(sorted(entries, key=_order), child_text(root, "IsTruncated") == "true")


async def all_entries(endpoint: Endpoint, bucket: str, credentials: Credentials | None) -> AsyncIterator[Entry]:
    """Every object of a bucket in one store. Raises: S3Error."""
    marker: str | None = ""
    while marker is not None:
        page = await store_page(endpoint, bucket, {"marker": marker, "max-keys": str(LIMIT_MAX)}, credentials)
        if not isinstance(page, Page):
            if page.status == 404:
                return
            raise S3Error(
                "ServiceUnavailable", f"The store for {endpoint.name} objects cannot be listed ({page.status})."
            )
        for entry in page.entries:
            yield entry
        marker = page.last_name


async def merged_listing(
    endpoints: Mapping[str, Endpoint],
    bucket: str,
    query: Mapping[str, str],
    credentials: Credentials | None,
    store_of: Callable[[Key], str | None],
) -> Reply:
    """The reply to ListObjects of either version. Raises: S3Error."""
    asked, encoding = Asked.of(query), UrlEncoding.of(query)
    if not asked.limit:
        return _document(bucket, asked, encoding, Page((), is_truncated=False))
    answers = await asyncio.gather(
        *(store_page(endpoints[store], bucket, asked.parameters(), credentials) for store in STORES)
    )
    pages = [answer for answer in answers if isinstance(answer, Page)]
    for answer in answers:
        if not isinstance(answer, Page):
            return answer
    return _document(bucket, asked, encoding, merge(pages, asked.limit, lambda name: store_of((bucket, name))))


def merge(pages: Sequence[Page], limit: int, store_of: Callable[[str], str | None]) -> Page:
    """The first entries of all pages."""
    by_name: dict[tuple[str, bool], Entry] = {}
    for entry in (entry for page in pages for entry in page.entries):
        known = by_name.get((entry.name, entry.is_object))
        if known is None or store_of(entry.name) == entry.store:
            by_name[entry.name, entry.is_object] = entry
    entries = sorted(by_name.values(), key=_order)
    return Page(entries[:limit], len(entries) > limit or any(page.is_truncated for page in pages))


def _document(bucket: str, asked: Asked, encoding: UrlEncoding, page: Page) -> Reply:
    query, more = asked.query, page.last_name
    if asked.is_second:
        with_owner = query.get("fetch-owner", "").lower() == "true"
        fields = [
            optional("ContinuationToken", query.get("continuation-token")),
            optional("NextContinuationToken", token_of(more)),
            optional("StartAfter", encoding(query["start-after"]) if "start-after" in query else None),
            element("KeyCount", str(len(page.entries))),
        ]
    else:
        with_owner = True
        next_marker = encoding(more) if more and query.get("delimiter") else None
        fields = [element("Marker", encoding(asked.marker)), optional("NextMarker", next_marker)]
    root = element(
        "ListBucketResult",
        element("Name", bucket),
        element("Prefix", encoding(query.get("prefix", ""))),
        *fields,
        element("MaxKeys", str(asked.limit)),
        optional("Delimiter", encoding(query["delimiter"]) if query.get("delimiter") else None),
        encoding.element(),
        element("IsTruncated", "true" if page.is_truncated else "false"),
        *(_entry_element(entry, encoding, with_owner=with_owner) for entry in page.entries),
    )
    return xml_reply(root)


def _entry_element(entry: Entry, encoding: UrlEncoding, *, with_owner: bool) -> Element:
    if not entry.is_object:
        return element("CommonPrefixes", element("Prefix", encoding(entry.name)))
    copied = [entry.found.find(name) for name in _COPIED if name != "Owner" or with_owner]
    return element("Contents", element("Key", encoding(entry.name)), *copied)


def _entry(found: Element, name: str, store: str) -> Entry:
    return Entry(unquote(child_text(found, name) or "", errors="surrogateescape"), store, found)


def _order(entry: Entry) -> bytes:
    """Names are in the order of their bytes."""
    return entry.name.encode("utf-8", "surrogateescape")
