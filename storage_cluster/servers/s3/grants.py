"""Access control lists: who may do what with a bucket or an object, apart from bucket policies.

A list has an owner and grants. The owner may always read and change the list itself; all else needs a grant, the
owner's own included. Lists come as a canned name (`x-amz-acl`), as `x-amz-grant-…` headers or as a document, and are
kept as JSON in the metadata of what they are about.

Source: Amazon S3 user guide, "Access control list (ACL) overview".
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from storage_cluster.servers.s3.documents import XSI, child_text, element
from storage_cluster.servers.s3.errors import S3Error

ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"
AUTHENTICATED_USERS = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
LOG_DELIVERY = "http://acs.amazonaws.com/groups/s3/LogDelivery"
GROUPS = (ALL_USERS, AUTHENTICATED_USERS, LOG_DELIVERY)
PERMISSIONS = ("READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL")
_OWNERS_RIGHTS = ("READ_ACP", "WRITE_ACP")
_GRANTEE = re.compile(r'\s*(id|uri|emailAddress)\s*=\s*"?([^",]*)"?\s*', re.IGNORECASE)
GRANT_HEADERS = {
    "x-amz-grant-read": "READ",
    "x-amz-grant-write": "WRITE",
    "x-amz-grant-read-acp": "READ_ACP",
    "x-amz-grant-write-acp": "WRITE_ACP",
    "x-amz-grant-full-control": "FULL_CONTROL",
}

IsUser = Callable[[str], bool]
"""Whether there is a user with this id."""


@dataclasses.dataclass(frozen=True)
class Grant:
    """One permission for a user (by id) or a group (by URI)."""

    grantee: str
    permission: str

    def is_for(self, user_id: str | None) -> bool:
        """Whether it is for this user; None: somebody who did not sign the request."""
        if self.grantee == ALL_USERS:
            return True
        return user_id is not None and self.grantee in (user_id, AUTHENTICATED_USERS)


@dataclasses.dataclass(frozen=True)
class Acl:
    """The list of one bucket or object."""

    owner: str
    grants: tuple[Grant, ...]

    def allows(self, user_id: str | None, permission: str) -> bool:
        """Whether the user has a permission."""
        if user_id == self.owner and permission in _OWNERS_RIGHTS:
            return True
        return any(grant.permission in (permission, "FULL_CONTROL") and grant.is_for(user_id) for grant in self.grants)

    @property
    def is_public(self) -> bool:
        """Whether it gives anything to everybody."""
        return any(grant.grantee in (ALL_USERS, AUTHENTICATED_USERS) for grant in self.grants)

    def text(self) -> str:
        """As it is kept in a header."""
        return quote(json.dumps([self.owner, [[grant.grantee, grant.permission] for grant in self.grants]]))

    @classmethod
    def from_text(cls, text: str) -> "Acl":
        """A list that was kept."""
        owner, grants = json.loads(unquote(text))
        return cls(owner, tuple(Grant(grantee, permission) for grantee, permission in grants))


def private(owner: str) -> Acl:
    """The list that gives everything to the owner and nothing to others."""
    return Acl(owner, (Grant(owner, "FULL_CONTROL"),))


def canned_acl(name: str, owner: str, bucket_owner: str) -> Acl:
    """The list of a canned name. Raises: S3Error for another name."""
    extra = {
        "private": (),
        "public-read": (Grant(ALL_USERS, "READ"),),
        "public-read-write": (Grant(ALL_USERS, "READ"), Grant(ALL_USERS, "WRITE")),
        "authenticated-read": (Grant(AUTHENTICATED_USERS, "READ"),),
        "bucket-owner-read": (Grant(bucket_owner, "READ"),) if bucket_owner != owner else (),
        "bucket-owner-full-control": (Grant(bucket_owner, "FULL_CONTROL"),) if bucket_owner != owner else (),
        "log-delivery-write": (Grant(LOG_DELIVERY, "WRITE"), Grant(LOG_DELIVERY, "READ_ACP")),
    }
    if name not in extra:
        raise S3Error("InvalidArgument", fields={"ArgumentName": "x-amz-acl", "ArgumentValue": name})
    return Acl(owner, (*private(owner).grants, *extra[name]))


def acl_in_headers(headers: Mapping[str, str], owner: str, bucket_owner: str, is_user: IsUser) -> Acl | None:
    """The list that a request's headers give; None if they give none. Raises: S3Error."""
    given = [name for name in GRANT_HEADERS if name in headers]
    name = headers.get("x-amz-acl")
    if name is not None and given:
        raise S3Error("InvalidRequest", "Specifying both Canned ACLs and Header Grants is not allowed")
    if name is not None:
        return canned_acl(name, owner, bucket_owner)
    if not given:
        return None
    grants = [
        Grant(grantee, GRANT_HEADERS[header]) for header in given for grantee in _grantees(headers[header], is_user)
    ]
    return Acl(owner, tuple(grants))


def acl_in_document(root: ET.Element, owner: str, is_user: IsUser) -> Acl:
    """The list in an `AccessControlPolicy`. Raises: S3Error."""
    said_owner, listed = root.find("Owner"), root.find("AccessControlList")
    if said_owner is None or listed is None:
        raise S3Error("MalformedACLError")
    if child_text(said_owner, "ID") not in (None, "", owner):
        raise S3Error("AccessDenied")
    return Acl(owner, tuple(_grant(one, is_user) for one in listed.findall("Grant")))


def acl_document(acl: Acl) -> ET.Element:
    """The list as a document's root."""
    return element(
        "AccessControlPolicy",
        owner_element("Owner", acl.owner),
        element("AccessControlList", *[_grant_element(grant) for grant in acl.grants]),
    )


def owner_element(name: str, user_id: str) -> ET.Element:
    """A user as documents show one."""
    return element(name, element("ID", user_id), element("DisplayName", user_id))


def _grantees(text: str, is_user: IsUser) -> list[str]:
    found = [_GRANTEE.fullmatch(part) for part in text.split(",")]
    return [_checked_grantee(one[1].lower() if one else "", one[2] if one else "", is_user) for one in found]


def _grant(one: ET.Element, is_user: IsUser) -> Grant:
    grantee, permission = one.find("Grantee"), child_text(one, "Permission")
    if grantee is None or permission not in PERMISSIONS:
        raise S3Error("MalformedACLError")
    assert permission is not None
    for name, kind in (("ID", "id"), ("URI", "uri"), ("EmailAddress", "emailaddress")):
        value = child_text(grantee, name)
        if value:
            return Grant(_checked_grantee(kind, value, is_user), permission)
    raise S3Error("MalformedACLError")


def _checked_grantee(kind: str, value: str, is_user: IsUser) -> str:
    if kind == "emailaddress":
        raise S3Error("UnresolvableGrantByEmailAddress")
    if (kind == "uri" and value in GROUPS) or (kind == "id" and is_user(value)):
        return value
    raise S3Error("InvalidArgument", "Invalid id" if kind == "id" else "Invalid group uri")


def _grant_element(grant: Grant) -> ET.Element:
    is_group = grant.grantee in GROUPS
    if is_group:
        named = [element("URI", grant.grantee)]
    else:
        named = [element("ID", grant.grantee), element("DisplayName", grant.grantee)]
    kind = {f"{{{XSI}}}type": "Group" if is_group else "CanonicalUser"}
    return element("Grant", element("Grantee", *named, attributes=kind), element("Permission", grant.permission))
