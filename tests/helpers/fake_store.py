"""A store for middlewares under test: a handler without sockets that keeps what is put and remembers what was asked."""

import asyncio
import hashlib

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Body, Call, Handler, Refusal, Reply, reply
from storage_cluster.servers.proxy.pipeline import Middleware, pipeline


class FakeStore:
    """Objects by path; every call that reached it in `calls`."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.calls: list[Call] = []

    def put(self, path: str, body: bytes = b"", **headers: str) -> None:
        """Have something there: `put("/v1/a/c/o", b"x", X_Object_Meta_A="1")`."""
        self.objects[path] = (body, {name.replace("_", "-"): value for name, value in headers.items()})

    async def __call__(self, call: Call) -> Reply:
        """The innermost handler."""
        self.calls.append(call)
        if call.method == "PUT":
            body = await call.body.read(1 << 30)
            self.objects[call.path] = (body, dict(call.headers))
            return reply(201, {"Etag": hashlib.md5(body).hexdigest()})
        if call.path not in self.objects:
            raise Refusal(404)
        if call.method == "DELETE":
            del self.objects[call.path]
            return reply(204)
        body, headers = self.objects[call.path]
        described = {"Etag": hashlib.md5(body).hexdigest(), "Content-Length": str(len(body))}
        return reply(200, described | headers, b"" if call.method == "HEAD" else body)

    @property
    def asked(self) -> list[str]:
        """`METHOD /path` of every call."""
        return [f"{call.method} {call.path}" for call in self.calls]


def call(
    request_line: str, headers: dict[str, str] | None = None, body: bytes = b"", query: dict[str, str] | None = None
) -> Call:
    """`call("PUT /v1/a/c/o")`."""
    method, path = request_line.split(" ", 1)
    return Call(
        method, tuple(path.split("/", 4)[2:]), query or {}, CIMultiDict(headers or {}), Body.of(body), path=path
    )


def ask(handler: Handler, asked: Call) -> Reply:
    """The reply, with its whole body."""

    async def run() -> Reply:
        found = await handler(asked)
        await found.read()
        return found

    return asyncio.run(run())


def through(middleware: Middleware, store: Handler) -> Handler:
    """A pipeline of one."""
    return pipeline([middleware], store)
