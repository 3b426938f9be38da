"""Group commit: files that are written and wait for the disk at the same time are committed together.

Each of a few threads takes all that wait when it becomes free. So alone a commit waits for nobody, and under load one
change of threads and one write of the file system's journal serve many (Gray and Reuter, "Transaction Processing",
10.4: group commit). Nobody is told that a commit is done before it is: file and directory are on the disk then.
"""

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

from storage_cluster.servers.diskfile import Commit, commit_all

THREADS = 4

Waiting = tuple[Commit, "asyncio.Future[None]"]


class Committer:
    """The threads of one server."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "commit")
        self._waiting: list[Waiting] = []
        self._running = 0

    def close(self) -> None:
        """Wait for what is under way."""
        self._threads.shutdown()

    async def commit(self, one: Commit) -> None:
        """It is on the disk when this returns. Raises: OSError."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((one, done))
        self._start()
        await done

    def _start(self) -> None:
        if self._waiting and self._running < THREADS:
            batch, self._waiting = self._waiting, []
            self._running += 1
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, commit_all, [one for one, _ in batch])
            running.add_done_callback(functools.partial(self._finish, batch))

    def _finish(self, batch: list[Waiting], ran: "asyncio.Future[None]") -> None:
        ran.result()
        self._running -= 1
        for one, done in batch:
            if done.done():
                continue  # nobody waits for it any more
            if one.failure is None:
                done.set_result(None)
            else:
                done.set_exception(one.failure)
        self._start()
