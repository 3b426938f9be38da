"""Requests to an ASGI app without a socket. (Starlette's own client wants another HTTP library than the project's.)"""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI


class AppClient:
    """Sends requests to an app, each in an event loop of its own; `headers` go with every request."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.headers: dict[str, str] = {}

    def request(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        headers = self.headers | dict(arguments.pop("headers", {}))
        return asyncio.run(self._request(method, url, headers=headers, **arguments))

    def get(self, url: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", url, **arguments)

    def post(self, url: str, **arguments: Any) -> httpx.Response:
        return self.request("POST", url, **arguments)

    def put(self, url: str, **arguments: Any) -> httpx.Response:
        return self.request("PUT", url, **arguments)

    async def _request(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.request(method, url, **arguments)
