"""Bodies that the object server sends: each piece as it is read, the last one only if the whole is intact."""

import asyncio
import random
from pathlib import Path

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.messages import BrokenOff, Call, Reply
from storage_cluster.servers.object.server import READ_CHUNK_BYTES, ObjectServer
from tests.helpers.in_process_store import InProcessStore

NAMES = ("AUTH_a", "c", "o")
BODY = random.Random(2).randbytes(3 * READ_CHUNK_BYTES + 1000)
PIECES = [BODY[start : start + READ_CHUNK_BYTES] for start in range(0, len(BODY), READ_CHUNK_BYTES)]


def read_object(store: InProcessStore, pieces: list[bytes], flipped: int = -1) -> None:
    """Read an object with a flipped byte into `pieces`. Raises: BrokenOff."""
    partition, (primary, *_), _, digest = store.place(*NAMES)
    store.write(primary, partition, digest, "0000000001.00000", BODY)
    (file,) = (store.device_dir(primary) / "objects").glob("**/*.data")
    with file.open("r+b") as stream:
        if flipped >= 0:
            stream.seek(flipped)
            stream.write(bytes([BODY[flipped] ^ 1]))

    async def read() -> None:
        devices = store.devices[primary.host]
        server = ObjectServer(devices, store, store.root / "turns.jsonl")  # type: ignore[arg-type]
        call = Call("GET", (primary.name, str(partition), *NAMES), {}, CIMultiDict(), transaction_id="tx")
        reply = await server.handle(call)
        assert isinstance(reply, Reply)
        try:
            async for piece in reply.chunks():
                pieces.append(piece)
        finally:
            await reply.close()
            server.close()

    asyncio.run(read())


def count_put_aside(store: InProcessStore) -> int:
    return len(list(store.root.glob("data/*/*/quarantined/objects/*")))


def test_an_intact_body_comes_in_pieces(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    with InProcessStore(tmp_path) as store:
        read_object(store, pieces)
        assert count_put_aside(store) == 0
    assert pieces == PIECES


@pytest.mark.parametrize("flipped", [0, READ_CHUNK_BYTES, len(BODY) - 1])
def test_a_damaged_body_has_no_last_piece_and_is_put_aside(flipped: int, tmp_path: Path) -> None:
    pieces: list[bytes] = []
    with InProcessStore(tmp_path) as store:
        with pytest.raises(BrokenOff):
            read_object(store, pieces, flipped)
        assert count_put_aside(store) == 1
    assert len(pieces) == len(PIECES) - 1
    assert sum(map(len, pieces)) == (len(PIECES) - 1) * READ_CHUNK_BYTES
