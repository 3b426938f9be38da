"""The proxy's middlewares in their order: each sees a call before what is inside it, and the reply after.

A middleware is called with the call and with `inner`, the rest of the pipeline. It answers itself, or passes the call
on (changed or not) and returns the reply (changed or not), or makes calls of its own with `call.derive(…)`. What
`inner` returns is always a `Reply`: a refusal inside is one already. `ProxyContext.whole` is the entire pipeline, for a
middleware whose calls must pass those before it as well.

Adding one: a module `proxy/<feature>.py` with a class (or a function) that takes the `ProxyContext`, one line below.

Source: Swift, proxy-server.conf-sample, [pipeline:main].
"""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

from storage_cluster.servers.http.messages import Call, Handler, Reply, reply_of
from storage_cluster.servers.proxy.auth import Auth
from storage_cluster.servers.proxy.bulk_delete import BulkDelete
from storage_cluster.servers.proxy.bulk_extract import BulkExtract
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.copy import Copy
from storage_cluster.servers.proxy.cors import Cors
from storage_cluster.servers.proxy.dlo import Dlo
from storage_cluster.servers.proxy.formpost import FormPost
from storage_cluster.servers.proxy.gatekeeper import Gatekeeper
from storage_cluster.servers.proxy.listing_formats import ListingFormats
from storage_cluster.servers.proxy.object_versioning import ObjectVersioning
from storage_cluster.servers.proxy.pages import Pages
from storage_cluster.servers.proxy.quotas import AccountQuotas, ContainerQuotas
from storage_cluster.servers.proxy.slo import Slo
from storage_cluster.servers.proxy.staticweb import StaticWeb
from storage_cluster.servers.proxy.symlink import Symlink
from storage_cluster.servers.proxy.tempurl import TempUrl
from storage_cluster.servers.proxy.versions import Versions


class Middleware(Protocol):
    """One step."""

    async def __call__(self, call: Call, inner: Handler) -> Reply:
        """Answer a call, with the help of what is inside. Raises: Refusal."""


MakeMiddleware = Callable[[ProxyContext], Middleware]

STORE_PIPELINE: tuple[MakeMiddleware, ...] = (
    ContainerQuotas,
    AccountQuotas,
    Slo,
    Dlo,
    Versions,
    ObjectVersioning,
    Symlink,
)
"""What belongs to the objects themselves, whichever API they are used through; outermost first."""

PIPELINE: tuple[MakeMiddleware, ...] = (
    Gatekeeper,
    Pages,
    ListingFormats,
    Cors,
    BulkDelete,
    BulkExtract,
    TempUrl,
    FormPost,
    Auth,
    StaticWeb,
    Copy,
    *STORE_PIPELINE,
)
"""Outermost first."""


def pipeline(middlewares: Sequence[Middleware], app: Handler) -> Handler:
    """All of them around the app, the first outermost."""
    handler: Handler = functools.partial(reply_of, app)
    for middleware in reversed(middlewares):
        handler = functools.partial(reply_of, functools.partial(_step, middleware, handler))
    return handler


async def _step(middleware: Middleware, inner: Handler, call: Call) -> Reply:
    return await middleware(call, inner)
