"""The public access block of a bucket: four switches that keep it and its objects from becoming public.

    BlockPublicAcls         access lists that let everybody in are refused
    IgnorePublicAcls        those that are there count only for named users
    BlockPublicPolicy       policies that let everybody in are refused
    RestrictPublicBuckets   one that is there lets in nobody but the owner

Source: Amazon S3 user guide, "Blocking public access to your Amazon S3 storage".
"""

import dataclasses
import json
from xml.etree.ElementTree import Element

from storage_cluster.servers.s3.documents import DocumentError, child_text, element, parse
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import GROUPS, Acl

_NAMES = {
    "block_acls": "BlockPublicAcls",
    "ignore_acls": "IgnorePublicAcls",
    "block_policy": "BlockPublicPolicy",
    "restrict_policy": "RestrictPublicBuckets",
}


@dataclasses.dataclass(frozen=True)
class PublicAccess:
    """The switches."""

    block_acls: bool = False
    ignore_acls: bool = False
    block_policy: bool = False
    restrict_policy: bool = False

    @classmethod
    def from_text(cls, text: str | None) -> "PublicAccess":
        """As they are kept; None: no block."""
        return cls(**json.loads(text)) if text else cls()

    @classmethod
    def from_document(cls, text: bytes) -> "PublicAccess":
        """The switches in a `PublicAccessBlockConfiguration`. Raises: S3Error (MalformedXML)."""
        try:
            root = parse(text, "PublicAccessBlockConfiguration")
        except DocumentError:
            raise S3Error("MalformedXML") from None
        given = {field: (child_text(root, name) or "false").strip().lower() for field, name in _NAMES.items()}
        if any(value not in ("true", "false") for value in given.values()):
            raise S3Error("MalformedXML")
        return cls(**{field: value == "true" for field, value in given.items()})

    def text(self) -> str:
        """To be kept."""
        return json.dumps(dataclasses.asdict(self))

    def document(self) -> Element:
        """As a document's root."""
        switches = [element(name, "true" if getattr(self, field) else "false") for field, name in _NAMES.items()]
        return element("PublicAccessBlockConfiguration", *switches)

    def check_acl(self, acl: Acl) -> Acl:
        """A list that a request gives. Raises: S3Error (AccessDenied) if it would make something public."""
        if self.block_acls and acl.is_public:
            raise S3Error("AccessDenied")
        return acl

    def in_force(self, acl: Acl) -> Acl:
        """What counts of a list."""
        if not self.ignore_acls:
            return acl
        return Acl(acl.owner, tuple(grant for grant in acl.grants if grant.grantee not in GROUPS))
