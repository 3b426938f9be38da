"""Object lock: versions that cannot be deleted before a time, or while somebody holds them.

    GOVERNANCE     not before the time, unless who may bypass it asks to (`x-amz-bypass-governance-retention`)
    COMPLIANCE     not before the time, by nobody; the time can only be moved later
    legal hold     not while it is ON

A bucket has locks from its creation, or from when they are switched on, and keeps versions from then on. Its default
retention is given to each object that is written without one of its own. All of this is about versions: writing a key
anew or deleting it without a version id is always possible. Requests of Swift's API do not know of locks.

Source: Amazon S3 user guide, "Locking objects with Object Lock".
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Self
from xml.etree.ElementTree import Element

from storage_cluster.servers.s3.documents import DocumentError, child_text, element, optional, parse
from storage_cluster.servers.s3.errors import S3Error

GOVERNANCE, COMPLIANCE = "GOVERNANCE", "COMPLIANCE"
SETTING = "Object-Lock"
RETENTION = "X-Object-Transient-Sysmeta-S3-Retention"
LEGAL_HOLD = "X-Object-Transient-Sysmeta-S3-Legal-Hold"
MODE_HEADER, UNTIL_HEADER = "x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date"
HOLD_HEADER = "x-amz-object-lock-legal-hold"
BYPASS_HEADER = "x-amz-bypass-governance-retention"
DAYS_MAX, YEARS_MAX = 36_500, 100
DAYS_PER_YEAR = 365


@dataclasses.dataclass(frozen=True)
class DefaultRetention:
    """What a bucket gives to objects that come without a retention."""

    mode: str
    days: int | None
    years: int | None

    def from_now(self, now: datetime.datetime) -> "Retention":
        """The retention of an object that is written now."""
        days = self.days if self.days is not None else (self.years or 0) * DAYS_PER_YEAR
        return Retention(self.mode, now + datetime.timedelta(days=days))


@dataclasses.dataclass(frozen=True)
class Retention:
    """Until when a version stays, and how strictly."""

    mode: str
    until: datetime.datetime  # UTC

    @classmethod
    def kept_in(cls, found: Mapping[str, str]) -> Self | None:
        """That of an object, from the store's headers; None if it has none."""
        mode, _, until = found.get(RETENTION, "").partition(" ")
        return cls(mode, datetime.datetime.fromisoformat(until)) if until else None

    @property
    def until_text(self) -> str:
        """The time as headers and documents show it."""
        return self.until.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.until.microsecond // 1000:03d}Z"

    def to_store(self) -> dict[str, str]:
        """As the store keeps it."""
        return {RETENTION: f"{self.mode} {self.until.isoformat()}"}

    def document(self) -> Element:
        """As a document's root."""
        return element("Retention", element("Mode", self.mode), element("RetainUntilDate", self.until_text))

    def allows(self, changed: "Retention | None", now: datetime.datetime, *, may_bypass: bool) -> bool:
        """Whether it may be replaced; by None: the version be deleted, or its retention removed."""
        if self.until <= now or (self.mode == GOVERNANCE and may_bypass):
            return True
        return changed is not None and changed.mode == self.mode and changed.until >= self.until


@dataclasses.dataclass(frozen=True)
class BucketLock:
    """What is configured of a bucket with locks."""

    default: DefaultRetention | None = None

    @classmethod
    def from_text(cls, text: str | None) -> Self | None:
        """As it is kept; None: the bucket has no locks."""
        if text is None:
            return None
        kept = json.loads(text)
        return cls(DefaultRetention(**kept) if kept else None)

    @classmethod
    def from_document(cls, text: bytes) -> Self:
        """What an `ObjectLockConfiguration` says. Raises: S3Error (MalformedXML, InvalidRetentionPeriod)."""
        root = _parse(text, "ObjectLockConfiguration")
        if child_text(root, "ObjectLockEnabled") != "Enabled":
            raise S3Error("MalformedXML")
        rule = root.find("Rule")
        given = None if rule is None else rule.find("DefaultRetention")
        if rule is None:
            return cls()
        if given is None:
            raise S3Error("MalformedXML")
        return cls(_default_retention(given))

    def text(self) -> str:
        """To be kept."""
        return json.dumps(dataclasses.asdict(self.default) if self.default else {})

    def document(self) -> Element:
        """As a document's root."""
        return element("ObjectLockConfiguration", element("ObjectLockEnabled", "Enabled"), self._rule())

    def _rule(self) -> Element | None:
        if self.default is None:
            return None
        days, years = (None if one is None else str(one) for one in (self.default.days, self.default.years))
        mode = element("Mode", self.default.mode)
        return element("Rule", element("DefaultRetention", mode, optional("Days", days), optional("Years", years)))


def locks_to_store(lock: BucketLock | None, headers: Mapping[str, str]) -> dict[str, str]:
    """Retention and legal hold of an object that a request writes, as the store keeps them. Raises: S3Error."""
    mode, until, hold = (headers.get(name) for name in (MODE_HEADER, UNTIL_HEADER, HOLD_HEADER))
    if lock is None:
        if (mode, until, hold) != (None, None, None):
            raise S3Error("InvalidRequest", "Bucket is missing Object Lock Configuration")
        return {}
    if (mode is None) != (until is None):
        raise S3Error("InvalidArgument", f"{UNTIL_HEADER} and {MODE_HEADER} must both be supplied")
    kept = {} if hold is None else {LEGAL_HOLD: _checked_hold(hold, "InvalidArgument")}
    now = datetime.datetime.now(datetime.UTC)
    if mode is not None and until is not None:
        return kept | _checked_retention(mode, until, now, "InvalidArgument").to_store()
    return kept | (lock.default.from_now(now).to_store() if lock.default else {})


def lock_headers(found: Mapping[str, str]) -> dict[str, str]:
    """Retention and legal hold of an object in a response, from the store's headers."""
    retention, hold = Retention.kept_in(found), found.get(LEGAL_HOLD)
    shown = {HOLD_HEADER: hold} if hold else {}
    return shown | ({MODE_HEADER: retention.mode, UNTIL_HEADER: retention.until_text} if retention else {})


def retention_in_document(text: bytes) -> Retention | None:
    """What a `Retention` says; None if it is empty, which removes one. Raises: S3Error."""
    root = _parse(text, "Retention")
    mode, until = child_text(root, "Mode"), child_text(root, "RetainUntilDate")
    if mode is None and until is None:
        return None
    if mode is None or until is None:
        raise S3Error("MalformedXML")
    return _checked_retention(mode, until, datetime.datetime.now(datetime.UTC), "MalformedXML")


def hold_in_document(text: bytes) -> str:
    """What a `LegalHold` says: ON or OFF. Raises: S3Error (MalformedXML)."""
    return _checked_hold(child_text(_parse(text, "LegalHold"), "Status") or "", "MalformedXML")


def is_locked(found: Mapping[str, str], *, may_bypass: bool) -> bool:
    """Whether a version may not be deleted now. `found`: the store's headers."""
    retention = Retention.kept_in(found)
    if found.get(LEGAL_HOLD) == "ON":
        return True
    now = datetime.datetime.now(datetime.UTC)
    return retention is not None and not retention.allows(None, now, may_bypass=may_bypass)


def _default_retention(given: Element) -> DefaultRetention:
    mode, days, years = (child_text(given, name) for name in ("Mode", "Days", "Years"))
    if mode not in (GOVERNANCE, COMPLIANCE) or (days is None) == (years is None):
        raise S3Error("MalformedXML")
    return DefaultRetention(mode, _checked_count(days, DAYS_MAX), _checked_count(years, YEARS_MAX))


def _checked_count(text: str | None, most: int) -> int | None:
    if text is None:
        return None
    if not text.strip().removeprefix("-").isdecimal():
        raise S3Error("MalformedXML")
    if not 1 <= int(text) <= most:
        raise S3Error("InvalidRetentionPeriod", f"The retention period must be from 1 to {most}")
    return int(text)


def _checked_retention(mode: str, until: str, now: datetime.datetime, code: str) -> Retention:
    if mode not in (GOVERNANCE, COMPLIANCE):
        raise S3Error(code, "Unknown wormMode directive")
    try:
        time = datetime.datetime.fromisoformat(until.strip())
        time = time.replace(tzinfo=time.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise S3Error(code, "The retain until date must be provided in ISO 8601 format") from None
    if time <= now:
        raise S3Error("InvalidArgument", "The retain until date must be in the future!")
    return Retention(mode, time)


def _checked_hold(text: str, code: str) -> str:
    if text not in ("ON", "OFF"):
        raise S3Error(code, "Legal Hold must be either of 'ON' or 'OFF'")
    return text


def _parse(text: bytes, root_name: str) -> Element:
    try:
        return parse(text, root_name)
    except DocumentError:
        raise S3Error("MalformedXML") from None
