"""Which requests of a run have packets in the trace that a viewer shows: their ids are links on the load page."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import httpx

TIMEOUT_S = 2.0


class Traced(NamedTuple):
    """What a viewer says of some transaction ids.

    `state`: `open`, a trace is open there; `none`, no viewer answers; `token`, it answers to those with its token only,
    so which ids it knows is unknown here.
    """

    state: Literal["open", "none", "token"]
    trace: str = ""
    known: tuple[str, ...] = ()


async def ask_viewer(url: str, transaction_ids: Sequence[str]) -> Traced:
    """Which of these ids the trace has that is open at `url`. Never raises for what is there: it is another program."""
    try:
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client:
            answer = await client.get("/api/transactions", params={"id": list(transaction_ids)})
        if answer.status_code in (401, 403):
            return Traced("token")
        said = answer.raise_for_status().json()
        return Traced("open", str(said["trace"]), tuple(str(each) for each in said["known"]))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return Traced("none")
