"""The answer of bulk operations: one document about many requests, in a format that the client accepts.

The status line says 200 before the work is done; how it went is in the document. While the work goes on, blanks are
sent, so that nobody takes the silence for a dead connection. The request's body is read before: a client that waits
for `100 Continue` would take the response for a refusal of its body.

Source: Swift, "Bulk Operations"; the documents are those of Swift 2.30.1.
"""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from xml.sax.saxutils import escape

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Refusal, Reply, usual_reason
from storage_cluster.servers.proxy.accept import best_match

_OFFERED = ("text/plain", "application/json", "application/xml", "text/xml")
_BLANK_AFTER_S = 10.0


@dataclasses.dataclass
class Report:
    """The results so far."""

    root: str  # of the XML document
    success: int  # the status if nothing went wrong
    counts: dict[str, int]  # "Number Deleted": 0, …
    text: str = ""
    status: int | None = None  # what stopped the whole
    errors: list[tuple[str, int | str]] = dataclasses.field(default_factory=list)

    def count(self, name: str) -> None:
        """Count one more request of that outcome."""
        self.counts[name] += 1

    def stop(self, status: int, text: str = "") -> None:
        """The whole ends here, with this status."""
        self.status, self.text = status, text

    def document(self, media_type: str) -> bytes:
        """The report in one of the offered forms."""
        if media_type == "application/json":
            return self._as_json().encode()
        return (self._as_xml() if media_type.endswith("/xml") else self._as_text()).encode()

    @property
    def _status_line(self) -> str:
        return _line(self.status or (_worst(self.errors) if self.errors else self.success))

    def _as_json(self) -> str:
        errors = [(name, _line(status)) for name, status in self.errors]
        fields = {"Response Status": self._status_line, "Response Body": self.text, **self.counts, "Errors": errors}
        return json.dumps(fields)

    def _as_text(self) -> str:
        fields = {**self.counts, "Response Body": self.text, "Response Status": self._status_line}
        lines = [f"{name}: {value}" for name, value in fields.items()]
        return "\n".join([*lines, "Errors:", *(f"{name}, {_line(status)}" for name, status in self.errors)]) + "\n"

    def _as_xml(self) -> str:
        fields = {**self.counts, "Response Body": self.text, "Response Status": self._status_line}
        lines = []
        for name, value in fields.items():
            tag = name.lower().replace(" ", "_")
            lines.append(f"<{tag}>{escape(str(value))}</{tag}>")
        errors = [
            f"<object><name>{escape(name)}</name><status>{_line(status)}</status></object>"
            for name, status in self.errors
        ]
        return "\n".join([f"<{self.root}>", *lines, "<errors>", *errors, "</errors>", f"</{self.root}>"]) + "\n"


Work = Callable[[], Awaitable[None]]


async def nothing_more() -> None:
    """The work where the report is complete already."""


async def reporting(call: Call, report: Report, prepare: Callable[[], Awaitable[Work]]) -> Reply:
    """Prepare, which reads the request's body; then work while the reply is being sent, which ends with the report.

    A report that nobody could read (406) is made without either.
    """
    try:
        media_type = best_match(call.headers.get("Accept", ""), _OFFERED)
    except Refusal:
        media_type = None
    if media_type is None:
        report.stop(406)
        unwritten = report.document("text/plain")
        return Reply(200, CIMultiDict({"Content-Type": "text/html; charset=UTF-8"}), unwritten)
    work = await prepare()
    return Reply(200, CIMultiDict({"Content-Type": media_type}), _blanks_then(work, report, media_type))


async def _blanks_then(work: Work, report: Report, media_type: str) -> AsyncIterator[bytes]:
    task = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({task}, timeout=_BLANK_AFTER_S))[0]:
            yield b" "
        task.result()
        yield report.document(media_type)
    finally:
        task.cancel()


def _worst(errors: list[tuple[str, int | str]]) -> int:
    return 502 if any(isinstance(status, int) and status >= 500 for _, status in errors) else 400


def _line(status: int | str) -> str:
    return status if isinstance(status, str) else f"{status} {usual_reason(status)}"
