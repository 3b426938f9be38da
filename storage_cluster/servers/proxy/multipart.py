"""Reading a browser's form (`multipart/form-data`) as it arrives: one part after the other, none held whole.

Source: RFC 7578.
"""

import dataclasses
from email.message import Message
from email.parser import HeaderParser

from storage_cluster.servers.http.messages import PLAIN, Refusal
from storage_cluster.servers.http.parts import PartReader


@dataclasses.dataclass(frozen=True)
class Part:
    """The head of one part."""

    name: str
    filename: str | None
    content_type: str | None


def boundary_of(content_type: str) -> bytes | None:
    """The boundary that a form's Content-Type names; None if it is no form."""
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    is_form = header.get_content_type() == "multipart/form-data" and boundary
    return boundary.encode("utf-8", "surrogateescape") if is_form and boundary else None


class FormReader(PartReader):
    """Reads the parts of a form: `next_part`, then its `content` to the end, and so on."""

    async def next_part(self) -> Part | None:
        """The next part's head; None after the last one. Raises: Refusal (400) for what is no form."""
        head = await self.next_head()
        return None if head is None else _part(head)

    def _not_multipart(self) -> Refusal:
        return Refusal(400, "FormPost: invalid starting boundary", PLAIN)


def _part(head: str) -> Part:
    parsed = HeaderParser().parsestr(head)
    filename = parsed.get_param("filename", None, "Content-Disposition")
    return Part(
        str(parsed.get_param("name", "", "Content-Disposition")),
        None if filename is None else str(filename),
        parsed.get("Content-Type"),
    )
