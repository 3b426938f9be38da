"""Detects replicas: servers of which each caller picks one, independently of the request's contents.

Two servers on one port with the same callers may also be two services. The choice distinguishes them:

- **One instead of the other.** Each call is assigned to the request, of those that its caller serves, for which it was
  made: the newest one still open, preferring one with the same target. If a caller picks a server, the total number of
  calls of a request varies less than the numbers for each server, since each call goes to only one of them:
  `Var(a + b) / (Var a + Var b)` is 0 if exactly one is called, and 1 if both are called independently. If every request
  calls both, nothing varies, and nothing is proven.
- **Whatever the contents.** Neither the target of the call nor that of the request for which it is made predicts the
  server, word by word, better than chance: nginx that sends `/a` here and `/b` there is no load balancer.
- For callers that serve nobody, each target stands for a request: over targets requested several times, the number at
  one server must have the variance of a coin (`Σ (a − kp)² / Σ kpq` near 1). It is near 0 if each target is requested
  from both, and far above if each target has its own server.
- If targets cannot be seen (TLS, unknown protocols), the sizes of requests and of answers must have the same
  distribution (Kolmogorov–Smirnov), and either the targets of the callers' own requests are visible, or sizes vary.

Without evidence no claim is made: servers that are rarely called, or whose caller works on many requests for a while
before it calls them, stay services of their own.

Cost: a sort of the calls, and a few passes for each pair of servers. Memory: 150 bytes for each of `MOST_CALLS`.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.trace.request_times import BEGIN, SERVER_BEGIN, SERVER_END

MOST_CALLS = 200_000
"""At most so many exchanges are examined; of more, only those of some seconds."""
SLICE_NS = 1_000_000_000
MOST_COMPARED = 2_000
"""The first calls of two servers, at most so many, are compared."""
LEAST_CALLS = 10
"""Fewest calls of each server: fewer prove nothing."""
MOST_JOINT_VARIANCE = 0.3
"""Greatest variance of the total relative to the servers' own: 0 for a choice, 0.5 and more otherwise (see the
tests)."""
FAIR_VARIANCE_RATIOS = (0.4, 2.5)
"""Range of the variance of a fair choice, relative to a coin's."""
MOST_WORDS = 5
"""At most so many words of a method and target are tried as predictors of the server."""
PREDICTS_SHARE = 0.5
"""From this share of the uncertainty about the server that a word removes, the word decides the server."""
LEAST_UNCERTAIN_SHARE = 0.05
"""Least uncertainty about the server by chance; with less, nothing can be predicted."""
SHUFFLES_COUNT = 20
MOST_DISTANCE, VARIED_LEAST_COUNT = 0.25, 8
"""Greatest distance of two distributions of sizes, and the number of different sizes that counts as varied."""
_COLUMNS = (
    *("service", "client_host", "server_host", "method", "target", "request_bytes", "response_bytes"),
    *dict.fromkeys((*BEGIN.columns, *SERVER_END.columns)),
)
PACKETS_PER_CALL = 10
BoolArray = NDArray[np.bool_]


def sampled_share(packets_count: int) -> float:
    """The share of all seconds that is examined, for a trace of so many packets."""
    return min(1.0, PACKETS_PER_CALL * MOST_CALLS / max(packets_count, 1))


class Watched(Struct, frozen=True):
    """The exchanges that are examined: calls of `services`, and requests to `hosts`, which make these calls.

    `share`: of all seconds of the trace.
    """

    services: frozenset[str]
    hosts: frozenset[str]
    share: float = 1.0

    def calls(self, exchanges: pa.Table) -> pl.DataFrame:
        """The rows and columns of some exchanges that `Choices` needs."""
        if not self.services and exchanges.num_rows:
            return self.calls(exchanges.slice(0, 0))
        rows = pl.DataFrame(exchanges.select(_COLUMNS)).filter(
            pl.col("service").is_in(list(self.services)) | pl.col("server_host").is_in(list(self.hosts))
        )
        return (
            rows.with_columns(pl.col("service", "client_host", "server_host", "method", "target").cast(pl.String))
            .select(
                *_COLUMNS[:7],
                asked=BEGIN.expr(),
                opened=SERVER_BEGIN.expr(),
                closed=SERVER_END.expr().fill_null(np.iinfo(np.int64).max),
            )
            .drop_nulls(["asked", "opened"])
            .filter(self._is_sampled())
        )

    def _is_sampled(self) -> pl.Expr:
        if self.share >= 1:
            return pl.lit(True)
        return (pl.col("asked") // SLICE_NS).hash(seed=1) % 10_000 < int(10_000 * self.share)


class Choices:
    """The choices of callers. Arguments: `watched`, and all parts of `Watched.calls`."""

    def __init__(self, watched: Watched, parts: Iterable[pl.DataFrame]) -> None:
        calls = pl.concat([watched.calls(_NOTHING), *parts])
        is_call = pl.col("service").is_in(list(watched.services))
        asked, serving = calls.filter(is_call), calls.filter(~is_call)
        made = _with_requests(asked, serving)
        self._calls = {str(name): rows for (name,), rows in made.group_by("service", maintain_order=True)}
        self._serving = frozenset(serving["server_host"].drop_nulls())
        self._known: dict[frozenset[str], bool] = {}

    def are_replicas(self, one: str, other: str) -> bool:
        """Whether two servers (`host:port`) are proven to be replicas."""
        pair = frozenset((one, other))
        if pair not in self._known:
            self._known[pair] = self._judge(one, other)
        return self._known[pair]

    def _judge(self, one: str, other: str) -> bool:
        if one not in self._calls or other not in self._calls:
            return False
        both = pl.concat([self._calls[one], self._calls[other]]).sort("asked")
        made = both.drop_nulls("request").head(MOST_COMPARED)
        if _has_enough_calls(made):
            return _picks_by_request(made, (made["service"] == one).to_numpy())
        serves = pl.col("client_host").is_in(list(self._serving)).fill_null(value=False)
        both = both.filter(~serves).head(MOST_COMPARED)
        return _has_enough_calls(both) and _picks_by_target(both, (both["service"] == one).to_numpy())


def _picks_by_request(calls: pl.DataFrame, is_one: BoolArray) -> bool:
    """Whether callers that serve others pick one of two servers for each request, whatever its contents."""
    if not _picks_one(calls["request"].to_numpy(), is_one):
        return False
    wanted, own = _words(calls, "request_method", "request_target"), _words(calls, "method", "target")
    if _predicts_server(wanted, is_one) or _predicts_server(own, is_one):
        return False
    return bool(own) or _sizes_alike(calls, is_one, varied=not wanted)


def _picks_by_target(calls: pl.DataFrame, is_one: BoolArray) -> bool:
    """Whether callers that serve nobody request the same targets from either of two servers."""
    own = _words(calls, "method", "target")
    return _is_a_coin(own, is_one) and not _predicts_server(own, is_one)


_NOTHING = pa.schema(
    [(name, pa.int64() if name.endswith(("_ns", "_bytes")) else pa.string()) for name in _COLUMNS]
).empty_table()


def _with_requests(calls: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """Calls with the `request` (a number) for which each was made, its method and target; null if none was open."""
    requests = (
        serving.drop_nulls("server_host")
        .sort("opened")
        .with_row_index("request")
        .select(
            "request", "closed", "opened", host="server_host", at="target", request_method="method",
            request_target="target",
        )
    )  # fmt: skip
    calls = calls.drop("opened", "closed").with_row_index("call").sort("asked")
    calls = calls.with_columns(host="client_host", at="target")
    found = []
    for by, among in ((["host", "at"], requests.drop_nulls("at")), (["host"], requests.drop("at"))):
        near = calls.drop_nulls(by).join_asof(
            among, left_on="asked", right_on="opened", by=by, check_sortedness=False, coalesce=False
        )
        found.append(
            near.filter(pl.col("closed") >= pl.col("asked")).select(
                "call", "request", "request_method", "request_target"
            )
        )
    made = pl.concat(found).unique("call", keep="first", maintain_order=True)
    return calls.join(made, on="call", how="left", maintain_order="left")


def _has_enough_calls(calls: pl.DataFrame) -> bool:
    count = calls["service"].value_counts()["count"]
    return len(count) == 2 and bool((count >= LEAST_CALLS).all())


def _words(calls: pl.DataFrame, method: str, target: str) -> list[tuple[str, ...]]:
    """Method, words of the path, and query, of each call; none if most cannot be seen."""
    if 2 * calls[target].null_count() > len(calls):
        return []
    return [_target_parts(*row) for row in calls.select(pl.col(method, target).fill_null("")).iter_rows()]


def _target_parts(method: str, target: str) -> tuple[str, ...]:
    path, _, query = target.partition("?")
    return (method, *path.strip("/").split("/"), query)


def _picks_one(request: NDArray[np.int64], is_one: BoolArray) -> bool:
    """Whether each request calls only one of the two servers."""
    _, place = np.unique(request, return_inverse=True)
    ones, others = (np.bincount(place, weights=which) for which in (is_one, ~is_one))
    apart = ones.var() + others.var()
    return bool(apart > 0 and (ones + others).var() <= MOST_JOINT_VARIANCE * apart)


def _is_a_coin(words: Sequence[tuple[str, ...]], is_one: BoolArray) -> bool:
    """Whether targets requested several times are distributed over both servers like coin tosses."""
    if not words:
        return False
    place = _codes(words)
    ones, every = np.bincount(place, weights=is_one), np.bincount(place)
    ones, every = ones[every > 1], every[every > 1]
    share = is_one.mean()
    if len(every) < LEAST_CALLS:
        return False
    spread = ((ones - every * share) ** 2).sum() / (every * share * (1 - share)).sum()
    return bool(FAIR_VARIANCE_RATIOS[0] <= spread <= FAIR_VARIANCE_RATIOS[1])


def _predicts_server(words: Sequence[tuple[str, ...]], is_one: BoolArray) -> bool:
    """Whether the first words predict the server, as far as words repeat."""
    random = np.random.default_rng(0)
    for length in range(1, MOST_WORDS + 1) if words else ():
        place = _codes([each[:length] for each in words])
        chance = float(np.mean([_share_guessed(place, random.permutation(is_one)) for _ in range(SHUFFLES_COUNT)]))
        if 1 - chance >= LEAST_UNCERTAIN_SHARE and _share_guessed(place, is_one) - chance >= PREDICTS_SHARE * (
            1 - chance
        ):
            return True
    return False


def _share_guessed(place: NDArray[np.int64], is_one: BoolArray) -> float:
    """The share of calls whose server is predicted correctly from their kind."""
    ones, every = np.bincount(place, weights=is_one), np.bincount(place)
    return float(np.maximum(ones, every - ones).sum() / len(is_one))


def _codes(words: Sequence[tuple[str, ...]]) -> NDArray[np.int64]:
    known: dict[tuple[str, ...], int] = {}
    return np.array([known.setdefault(each, len(known)) for each in words], dtype=np.int64)


def _sizes_alike(calls: pl.DataFrame, is_one: BoolArray, *, varied: bool) -> bool:
    """Whether requests and answers of both servers have the same sizes; with `varied`, also many different ones."""
    for name in ("request_bytes", "response_bytes"):
        sizes = calls[name].fill_null(0).to_numpy()
        one, other = np.sort(sizes[is_one]), np.sort(sizes[~is_one])
        edges = np.unique(sizes)
        apart = [np.searchsorted(each, edges, side="right") / len(each) for each in (one, other)]
        by_chance = 1.36 * np.sqrt(1 / len(one) + 1 / len(other))  # once in twenty
        if np.abs(apart[0] - apart[1]).max() > max(MOST_DISTANCE, by_chance):
            return False
    return not varied or len(edges) >= VARIED_LEAST_COUNT
