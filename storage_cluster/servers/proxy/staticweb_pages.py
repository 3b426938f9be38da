"""The generated pages of a static web site: a folder's listing, or the reason why there is none.

Ids and classes are those that style sheets for Swift's pages rely on: `listing`, `item`, `subdir`, `colname`, `type-…`.

Source: Swift, "StaticWeb", X-Container-Meta-Web-Listings-CSS.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from storage_cluster.servers.http.messages import usual_text

NOT_FOUND = usual_text(404).encode()
MOVED = b"<html><h1>Moved Permanently</h1><p>The resource has moved permanently.</p></html>"
_STYLE = """<style type="text/css">
h1 { font-size: 1em; }
th, td { padding: 0 1em; text-align: left; }
a { text-decoration: none; }
</style>"""

_HEADING = (
    '<tr id="heading"><th class="colname">Name</th><th class="colsize">Size</th><th class="coldate">Date</th></tr>'
)


def listing(title: str, css: str, prefix: str, entries: Sequence[Mapping[str, Any]]) -> bytes:
    """A table of a folder: its parent, its folders, its objects."""
    rows = [_row("../", "item", name="../", row_id="parent")] if prefix else []
    folders = [entry["subdir"][len(prefix) :] for entry in entries if "subdir" in entry]
    rows += [_row(quote(name), "item subdir", name) for name in folders]
    rows += [_object_row(entry, prefix) for entry in entries if "subdir" not in entry]
    table = "\n".join(['<table id="listing">', _HEADING, *rows, "</table>"])
    return _page(title, css, f'<h1 id="title">{escape(title)}</h1>\n{table}')


def disabled_page(title: str, css: str, index: str) -> bytes:
    """Says that the folder has no index, and that listings are off."""
    text = (
        "<h1>Web Listing Disabled</h1>\n<p>The owner of this web site has disabled web listing."
        " If you are the owner, you can enable it by setting X-Container-Meta-Web-Listings.</p>"
    )
    if index:
        text += (
            "\n<h1>Index File Not Found</h1>\n<p>The owner of this web site has set"
            f" <b>X-Container-Meta-Web-Index: {escape(index)}</b>. However, this file is not found.</p>"
        )
    return _page(title, css, text)


def _object_row(entry: Mapping[str, Any], prefix: str) -> str:
    name = entry["name"][len(prefix) :]
    kinds = (re.sub(r"[^a-z0-9-]+", "-", part) for part in entry["content_type"].lower().split(";")[0].split("/"))
    classes = " ".join(["item", *(f"type-{kind}" for kind in kinds)])
    date = entry["last_modified"].partition(".")[0].replace("T", " ")
    return _row(quote(name), classes, name, size=_human_size(entry["bytes"]), date=date)


def _row(
    href: str, classes: str, name: str, *, size: str = "&nbsp;", date: str = "&nbsp;", row_id: str | None = None
) -> str:
    marked = f' id="{row_id}"' if row_id else ""
    return (
        f'<tr{marked} class="{classes}"><td class="colname"><a href="{escape(href)}">{escape(name)}</a></td>'
        f'<td class="colsize">{size}</td><td class="coldate">{date}</td></tr>'
    )


def _human_size(size_bytes: int) -> str:
    """A size as `ls -h` gives it: in the unit that leaves at most four digits."""
    size, units = float(size_bytes), iter(("", "Ki", "Mi", "Gi", "Ti", "Pi"))
    unit = next(units)
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{round(size)}{unit}"


def _page(title: str, css: str, body: str) -> bytes:
    style = f'<link rel="stylesheet" type="text/css" href="{escape(css)}" />' if css else _STYLE
    head = f"<head>\n<title>{escape(title)}</title>\n{style}\n</head>"
    return f"<!DOCTYPE html>\n<html>\n{head}\n<body>\n{body}\n</body>\n</html>\n".encode()
