"""Life cycles: rules of a bucket by which objects, versions, delete markers and uploads are removed when they are old.

    current version       `Expiration`, some days after it was written or on a date; versions get a delete marker
    earlier versions      `NoncurrentVersionExpiration`, some days after a newer one was written; the newest may be kept
    delete marker         `ExpiredObjectDeleteMarker`, or `Expiration` by days, where it is all that is left of a key
    multipart upload      `AbortIncompleteMultipartUpload`, some days after it was begun

A time that days lead to is rounded up to the next midnight UTC. `[s3] lifecycle_day_s` makes days shorter, for tries;
then nothing is rounded. There is one storage class, so transitions to others are refused.

Source: Amazon S3 user guide, "Managing the lifecycle of objects"; API reference, PutBucketLifecycleConfiguration.
"""

import dataclasses
import datetime
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from typing import Any, Self
from urllib.parse import quote
from xml.etree.ElementTree import Element

from storage_cluster.servers.s3.documents import DocumentError, child_text, element, optional, parse
from storage_cluster.servers.s3.errors import S3Error

SETTING = "Lifecycle"
RULES_MAX = 1000
ID_MAX_LEN = 255
DAY_S = 86_400
DAYS_MAX = 2**31 - 1
_TRANSITIONS = ("Transition", "NoncurrentVersionTransition")


@dataclasses.dataclass(frozen=True)
class Clock:
    """The present, and how long a day is."""

    now_s: float  # since 1970
    day_s: float = DAY_S

    def after(self, moment_s: float, days: int) -> float:
        """The time so many days after a moment; s since 1970."""
        due_s = moment_s + days * self.day_s
        return math.ceil(due_s / DAY_S) * DAY_S if self.day_s == DAY_S else due_s

    def is_over(self, moment_s: float, days: int | None) -> bool:
        """Whether so many days have passed since a moment; not where there are no days."""
        return days is not None and self.after(moment_s, days) <= self.now_s


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of an object, as rules look at it."""

    key: str
    id: str | None  # of the version, as the store has it; None: the bucket has no versions
    is_marker: bool
    size_bytes: int
    written_s: float  # since 1970
    superseded_s: float | None  # since 1970: when a newer version was written; None: it is the current one
    newer_count: int  # of versions that are newer than it, without the current one
    is_alone: bool  # no other version of the key is left


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule."""

    id: str
    is_enabled: bool
    prefix: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    larger_than_bytes: int | None = None
    smaller_than_bytes: int | None = None
    has_filter: bool = True  # False: the document has a bare `Prefix`
    days: int | None = None
    date: str | None = None  # ISO, midnight UTC
    expires_markers: bool = False
    noncurrent_days: int | None = None
    newer_noncurrent: int | None = None
    abort_days: int | None = None

    def covers(self, key: str, size_bytes: int) -> bool:
        """Whether its filter lets a key through; tags are looked at apart."""
        return (
            self.is_enabled
            and key.startswith(self.prefix)
            and (self.larger_than_bytes is None or size_bytes > self.larger_than_bytes)
            and (self.smaller_than_bytes is None or size_bytes < self.smaller_than_bytes)
        )

    def has_tags_of(self, tags: Mapping[str, str]) -> bool:
        """Whether an object with these tags has all that the filter names."""
        return all(tags.get(name) == value for name, value in self.tags)

    def removes(self, version: Version, clock: Clock) -> bool:
        """Whether a version is due; tags are looked at apart."""
        if not self.covers(version.key, version.size_bytes):
            return False
        if version.superseded_s is not None:
            is_spared = self.newer_noncurrent is not None and version.newer_count < self.newer_noncurrent
            return clock.is_over(version.superseded_s, self.noncurrent_days) and not is_spared
        if version.is_marker:
            return version.is_alone and (self.expires_markers or clock.is_over(version.written_s, self.days))
        return clock.is_over(version.written_s, self.days) or (
            self.date is not None and _time_s(self.date) <= clock.now_s
        )

    def expires_at(self, written_s: float, clock: Clock) -> float | None:
        """When a current version expires, s since 1970; None: never."""
        if self.date is not None:
            return _time_s(self.date)
        return None if self.days is None else clock.after(written_s, self.days)


@dataclasses.dataclass(frozen=True)
class Lifecycle:
    """The rules of a bucket."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def from_text(cls, text: str | None) -> Self:
        """As they are kept; None: no rules."""
        kept: list[dict[str, Any]] = json.loads(text) if text else []
        return cls(tuple(Rule(**{**one, "tags": tuple(map(tuple, one.get("tags", ())))}) for one in kept))

    @classmethod
    def from_document(cls, text: bytes) -> Self:
        """The rules in a `LifecycleConfiguration`. Raises: S3Error."""
        try:
            root = parse(text, "LifecycleConfiguration")
        except DocumentError:
            raise S3Error("MalformedXML") from None
        rules = tuple(map(_rule, root.findall("Rule")))
        if not 1 <= len(rules) <= RULES_MAX:
            raise S3Error("MalformedXML")
        if len({rule.id for rule in rules}) < len(rules):
            raise S3Error("InvalidArgument", "Rule ID must be unique. Found same ID for more than one rule")
        return cls(rules)

    def text(self) -> str:
        """To be kept: what differs from an empty rule."""
        empty = dataclasses.asdict(Rule("", is_enabled=True))
        del empty["id"], empty["is_enabled"]
        kept = [dataclasses.asdict(rule) for rule in self.rules]
        return json.dumps([{k: v for k, v in one.items() if k not in empty or v != empty[k]} for one in kept])

    def document(self) -> Element:
        """As a document's root."""
        return element("LifecycleConfiguration", *map(_rule_element, self.rules))

    def header(
        self, key: str, size_bytes: int, tags: Mapping[str, str], written_s: float, clock: Clock
    ) -> dict[str, str]:
        """The header that says when an object expires, and by which rule; {} if it does not."""
        due = [
            (expires_s, rule.id)
            for rule in self.rules
            if rule.covers(key, size_bytes) and rule.has_tags_of(tags)
            if (expires_s := rule.expires_at(written_s, clock)) is not None
        ]
        if not due:
            return {}
        expires_s, rule_id = min(due)
        date = formatdate(expires_s, usegmt=True)
        return {"x-amz-expiration": f'expiry-date="{date}", rule-id="{quote(rule_id)}"'}


def versions_in(entries: Sequence[Mapping[str, Any]], marker_type: str) -> list[Version]:
    """The versions of one key, newest first, from entries of a listing of the store's in that order."""
    made: list[Version] = []
    has_current = bool(entries) and bool(entries[0].get("is_latest", True))
    for at, entry in enumerate(entries):
        is_current = at == 0 and has_current
        made.append(
            Version(
                key=entry["name"],
                id=entry.get("version_id"),
                is_marker=entry["content_type"] == marker_type,
                size_bytes=entry["bytes"],
                written_s=_time_s(entry["last_modified"]),
                superseded_s=None if is_current else made[-1].written_s if made else _time_s(entry["last_modified"]),
                newer_count=at - 1 if has_current else at,
                is_alone=len(entries) == 1,
            )
        )
    return made


def _rule(given: Element) -> Rule:
    rule_id = child_text(given, "ID") or secrets.token_urlsafe(24)
    if len(rule_id) > ID_MAX_LEN:
        raise S3Error("InvalidArgument", f"ID length should not exceed allowed limit of {ID_MAX_LEN}")
    status = child_text(given, "Status")
    if status not in ("Enabled", "Disabled"):
        raise S3Error("MalformedXML")
    if any(given.find(name) is not None for name in _TRANSITIONS):
        raise S3Error("InvalidStorageClass", "There is one storage class, STANDARD, so there are no transitions.")
    actions = _expiration(given) | _noncurrent(given) | _abort(given)
    if not actions:
        raise S3Error("InvalidRequest", "At least one action needs to be specified in a rule")
    rule = Rule(rule_id, status == "Enabled", **{**_filter(given), **actions})
    if rule.tags and (rule.expires_markers or rule.abort_days is not None):
        raise S3Error("InvalidRequest", "Delete markers and uploads have no tags: the rule cannot name any")
    return rule


def _filter(given: Element) -> dict[str, Any]:
    bare, whole = child_text(given, "Prefix"), given.find("Filter")
    if (bare is None) == (whole is None):
        raise S3Error("MalformedXML")
    if whole is None:
        return {"prefix": bare, "has_filter": False}
    several = whole.find("And")
    if len(whole) > 1:
        raise S3Error("MalformedXML")
    inside = whole if several is None else several
    sizes = {
        "larger_than_bytes": _count(child_text(inside, "ObjectSizeGreaterThan"), 0),
        "smaller_than_bytes": _count(child_text(inside, "ObjectSizeLessThan"), 1),
    }
    tags = tuple((child_text(one, "Key") or "", child_text(one, "Value") or "") for one in inside.findall("Tag"))
    if len(dict(tags)) < len(tags):
        raise S3Error("InvalidRequest", "Duplicate Tag Keys are not allowed.")
    return {"prefix": child_text(inside, "Prefix") or "", "tags": tags, **sizes}


def _expiration(given: Element) -> dict[str, Any]:
    found = given.find("Expiration")
    if found is None:
        return {}
    days, date, marker = (child_text(found, name) for name in ("Days", "Date", "ExpiredObjectDeleteMarker"))
    if sum(one is not None for one in (days, date, marker)) != 1:
        raise S3Error("MalformedXML")
    if marker is not None:
        return {"expires_markers": marker.strip().lower() == "true"}
    return {"days": _days(days)} if days is not None else {"date": _checked_date(date or "")}


def _noncurrent(given: Element) -> dict[str, Any]:
    found = given.find("NoncurrentVersionExpiration")
    if found is None:
        return {}
    spared = _count(child_text(found, "NewerNoncurrentVersions"), 1)
    return {"noncurrent_days": _days(child_text(found, "NoncurrentDays")), "newer_noncurrent": spared}


def _abort(given: Element) -> dict[str, Any]:
    found = given.find("AbortIncompleteMultipartUpload")
    return {} if found is None else {"abort_days": _days(child_text(found, "DaysAfterInitiation"))}


def _days(text: str | None) -> int:
    found = _count(text, 1)
    if found is None:
        raise S3Error("MalformedXML")
    return found


def _count(text: str | None, least: int) -> int | None:
    if text is None:
        return None
    if not text.strip().removeprefix("-").isdecimal():
        raise S3Error("MalformedXML")
    if not least <= int(text) <= DAYS_MAX:
        raise S3Error("InvalidArgument", "Days and sizes in a life cycle must be positive integers")
    return int(text)


def _checked_date(text: str) -> str:
    try:
        moment_s = _time_s(text.strip())
    except ValueError:
        raise S3Error("MalformedXML") from None
    if moment_s % DAY_S:
        raise S3Error("InvalidArgument", "'Date' must be at midnight GMT")
    return datetime.datetime.fromtimestamp(moment_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _time_s(iso: str) -> float:
    """An ISO time as s since 1970; one without a zone is UTC. Raises: ValueError."""
    moment = datetime.datetime.fromisoformat(iso)
    return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()


def _rule_element(rule: Rule) -> Element:
    return element(
        "Rule",
        element("ID", rule.id),
        _filter_element(rule) if rule.has_filter else element("Prefix", rule.prefix),
        element("Status", "Enabled" if rule.is_enabled else "Disabled"),
        _numbers_element(
            "Expiration", Days=rule.days, Date=rule.date, ExpiredObjectDeleteMarker=_true(rule.expires_markers)
        ),
        _numbers_element(
            "NoncurrentVersionExpiration",
            NoncurrentDays=rule.noncurrent_days,
            NewerNoncurrentVersions=rule.newer_noncurrent,
        ),
        _numbers_element("AbortIncompleteMultipartUpload", DaysAfterInitiation=rule.abort_days),
    )


def _filter_element(rule: Rule) -> Element:
    inside = [element("Prefix", rule.prefix)] if rule.prefix else []
    inside += [element("Tag", element("Key", name), element("Value", value)) for name, value in rule.tags]
    sizes = {"ObjectSizeGreaterThan": rule.larger_than_bytes, "ObjectSizeLessThan": rule.smaller_than_bytes}
    inside += [element(name, str(size)) for name, size in sizes.items() if size is not None]
    return element(
        "Filter", element("And", *inside) if len(inside) > 1 else None, *(inside if len(inside) == 1 else [])
    )


def _numbers_element(name: str, **children: int | str | None) -> Element | None:
    given = [optional(child, None if value is None else str(value)) for child, value in children.items()]
    return element(name, *given) if any(one is not None for one in given) else None


def _true(value: bool) -> str | None:
    return "true" if value else None
