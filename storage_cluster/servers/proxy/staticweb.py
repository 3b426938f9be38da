"""Static web sites: a container shown to browsers as pages.

For who comes without a token (or says `X-Web-Mode: true`), a container with `X-Container-Meta-Web-Index` shows that
object for each folder, with `-Web-Listings` a page of what is in it, and with `-Web-Error: error.html` the object
`404error.html` for what is not there. A folder's address ends in a slash: without it, the browser is sent there.

Source: Swift, "StaticWeb", and the answers of Swift 2.30.1.
"""

import dataclasses
import json
from typing import Any
from urllib.parse import quote

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Handler, Reply, reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy import staticweb_pages as pages
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.infos import ContainerInfo

_HTML = {"Content-Type": "text/html; charset=UTF-8"}


@dataclasses.dataclass(frozen=True)
class _Site:
    """A container's settings for its pages."""

    index: str
    error: str
    listings: bool
    css: str
    label: str
    folder_type: str

    @classmethod
    def of(cls, container: ContainerInfo) -> "_Site":
        def setting(name: str) -> str:
            return (container.meta("Container", f"Web-{name}") or "").strip()

        return cls(
            setting("Index"),
            setting("Error"),
            is_true(setting("Listings")),
            setting("Listings-CSS"),
            setting("Listings-Label"),
            setting("Directory-Type") or "application/directory",
        )


class StaticWeb:
    """Shows containers as web sites."""

    def __init__(self, context: ProxyContext) -> None:
        self._infos = context.infos

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer a browser; pass on anything else."""
        web_mode = is_true(call.headers.get("X-Web-Mode", ""))
        if len(call.names) < 2 or call.method not in ("GET", "HEAD") or (call.identity is not None and not web_mode):
            return await inner(call)
        container = await self._infos.container(call, *call.names[:2])
        site = _Site.of(container)
        if not container.exists or not (site.index or site.listings or site.error):
            return await inner(call)
        visit = _Visit(call, inner, site)
        if len(call.names) == 3:
            return await visit.object()
        return await (visit.container() if site.index or site.listings else inner(call))


class _Visit:
    """One browser's request to a site."""

    def __init__(self, call: Call, inner: Handler, site: _Site) -> None:
        self._call = call
        self._inner = inner
        self._site = site

    async def container(self) -> Reply:
        if not self._call.path.endswith("/"):
            return self._redirect()
        return await self._folder("")

    async def object(self) -> Reply:
        name = self._call.names[2]
        found = await self._inner(self._call)
        if found.status < 400 and not self._is_folder(found):
            return found
        if found.status < 400:
            await found.close()
            found = reply(404, _HTML, pages.NOT_FOUND)
        if found.status != 404 or not (self._site.index or self._site.listings):
            return await self._error(found)
        if name.endswith("/"):
            return await self._folder(name)
        return self._redirect() if await self._has_folder(name + "/") else await self._error(found)

    async def _folder(self, prefix: str) -> Reply:
        """A folder's index object, else its listing."""
        if self._site.index:
            found = await self._get(prefix + self._site.index)
            if found.status < 400:
                return found
            if found.status != 404:
                return await self._error(found)
        return await self._listing(prefix)

    async def _listing(self, prefix: str) -> Reply:
        css, title = self._css(prefix), f"Listing of {self._label()}{prefix}"
        if not self._site.listings:
            return await self._error(reply(404, _HTML, pages.disabled_page(title, css, self._site.index)))
        found = await self._list(prefix, {"delimiter": "/"})
        if not found.is_success:
            return await self._error(found)
        entries: list[dict[str, Any]] = json.loads(await found.read())
        if prefix and not entries:
            return await self._error(reply(404, _HTML, pages.NOT_FOUND))
        return reply(200, _HTML, pages.listing(title, css, prefix, entries))

    async def _error(self, found: Reply) -> Reply:
        """The site's own page for an error, if it has one; its status stays."""
        if not self._site.error:
            return found
        page = await self._get(f"{found.status}{self._site.error}")
        if not page.is_success:
            await page.close()
            return found
        await found.close()
        return dataclasses.replace(page, status=found.status)

    async def _get(self, name: str) -> Reply:
        headers = {key: value for key, value in self._call.headers.items() if key.lower() != "range"}
        return await self._inner(self._call.derive(names=(*self._call.names[:2], name), headers=headers, source="SW"))

    async def _list(self, prefix: str, query: dict[str, str]) -> Reply:
        query = query | ({"prefix": prefix} if prefix else {})
        return await self._inner(self._call.derive(method="GET", names=self._call.names[:2], query=query, source="SW"))

    async def _has_folder(self, prefix: str) -> bool:
        if self._site.index:
            names = (*self._call.names[:2], prefix + self._site.index)
            if (await self._inner(self._call.derive(method="HEAD", names=names, source="SW"))).status < 400:
                return True
        found = await self._inner(
            self._call.derive(
                method="GET",
                names=self._call.names[:2],
                query={"prefix": prefix, "limit": "1"},
                source="SW",
            )
        )
        return found.is_success and bool(json.loads(await found.read()))

    def _is_folder(self, found: Reply) -> bool:
        kind = found.headers.get("Content-Type", "").partition(";")[0].strip()
        return kind == self._site.folder_type and int(found.headers.get("Content-Length", "0")) <= 1

    def _redirect(self) -> Reply:
        path = self._call.url_path.partition("?")[0]
        location = f"http://{self._call.headers.get('Host', '')}{path}/"
        return Reply(301, CIMultiDict({**_HTML, "Location": location}), pages.MOVED)

    def _label(self) -> str:
        return f"{self._site.label or '/v1/' + '/'.join(self._call.names[:2])}/"

    def _css(self, prefix: str) -> str:
        css = self._site.css
        is_elsewhere = css.startswith(("/", "http://", "https://"))
        return quote(css, ":/") if is_elsewhere or not css else "../" * prefix.count("/") + quote(css)
