"""Sends a daemon's requests to other servers; a server that did not answer is skipped for the rest of the pass.

A stopped server or a cut link costs a request its whole timeout. A daemon has thousands of requests in a pass, and most
of them are for others.
"""

from collections.abc import Mapping

from storage_cluster.ring import Ring
from storage_cluster.servers.http.backend import NO_ANSWER, Backend, BackendAnswer, BackendStream, BackendUpload
from storage_cluster.topology import Service, Topology


class DaemonRequests(Backend):
    """Requests of one daemon."""

    def __init__(self, topology: Topology, rings: Mapping[str, Ring], program: str) -> None:
        super().__init__(topology, rings, program)
        self._silent: set[tuple[str, int]] = set()

    def begin_pass(self) -> None:
        """Begin a pass: no server is skipped until it fails to answer."""
        self._silent.clear()

    async def request(
        self, service: Service, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> BackendAnswer:
        """One request with a small body, answered whole; at once with status 0 if the server is known to be silent."""
        if (service.address, service.port) in self._silent:
            return BackendAnswer(NO_ANSWER)
        answer = await super().request(service, method, path, headers, body)
        if answer.status == NO_ANSWER:
            self._silent.add((service.address, service.port))
        return answer

    async def open(self, service: Service, method: str, path: str, headers: Mapping[str, str]) -> BackendStream | None:
        """An answer whose body is still to be read; None if the server does not answer. The caller closes it."""
        if (service.address, service.port) in self._silent:
            return None
        stream = await super().open(service, method, path, headers)
        if stream is None:
            self._silent.add((service.address, service.port))
        return stream

    async def upload(self, service: Service, path: str, headers: Mapping[str, str]) -> BackendUpload | None:
        """Begin a PUT and wait until the server asks for the body or answers; None if it does neither."""
        if (service.address, service.port) in self._silent:
            return None
        upload = await super().upload(service, path, headers)
        if upload is None:
            self._silent.add((service.address, service.port))
        return upload
