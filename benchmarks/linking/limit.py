"""How many of `front`'s calls anybody could attribute: `python -m benchmarks.linking.limit RECORDING…`, of `chain`.

Each request that `front` serves makes one call, after a wait and before another, both of exponential distribution.
Given who made which call, the waits of all requests add up to the same time whoever made them, so every way to hand out
the calls that keeps each within its request is exactly as likely as the truth (but for timers that are late). Whoever
knows all that packets show, and the distributions beside, can do no better than to name for each call the request that
made it in most of these ways. They are drawn by swaps: two calls change requests where both stay within.

Read are the servers' logs: this is a limit of the truth, not a reconstruction.
"""

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.linking.truth import read_logs

BURN_IN_SHARE = 0.1


def shares_of_ways(
    requests: NDArray[np.int64], calls: NDArray[np.int64], sweeps: int, seed: int = 1
) -> list[dict[int, float]]:
    """For each call, in what share of the ways each request made it.

    Arguments: `requests` and `calls`, (n, 2) ns, begin and end of each; call k was made by request k, which is one of
    the ways and where the walk begins; `sweeps`, turns in which each call is offered a swap.
    """
    draws, (begins, ends), (sent, answered) = np.random.default_rng(seed), requests.T, calls.T
    around = [np.flatnonzero((begins < sent[call]) & (ends > answered[call])) for call in range(len(calls))]
    within = [frozenset(each.tolist()) for each in around]
    request_of, call_of = list(range(len(calls))), list(range(len(calls)))
    seen: list[dict[int, int]] = [{} for _ in calls]
    skipped = int(sweeps * BURN_IN_SHARE)
    for sweep in range(sweeps):
        for call, draw in zip(draws.permutation(len(calls)).tolist(), draws.random(len(calls)).tolist(), strict=True):
            wanted, had = int(around[call][int(draw * len(around[call]))]), request_of[call]
            other = call_of[wanted]
            if had in within[other]:
                request_of[call], request_of[other], call_of[wanted], call_of[had] = wanted, had, call, other
        if sweep >= skipped:
            for call, request in enumerate(request_of):
                seen[call][request] = seen[call].get(request, 0) + 1
    return [{request: count / (sweeps - skipped) for request, count in each.items()} for each in seen]


def _times(folder: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    logs = read_logs(folder / "logs")
    times = ["start_ns", "end_ns"]
    served = logs.filter(host="proxy").select("transaction_id", *times)
    made = logs.filter(host="storage1").select("transaction_id", *times)
    both = served.join(made, on="transaction_id", suffix="_call").sort("start_ns_call")
    requests, calls = both.select(times), both.select(f"{name}_call" for name in times)
    return requests.to_numpy(), calls.to_numpy()


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--sweeps", default=1_000, show_default=True, help="Ways that are drawn.")
def main(recordings: tuple[Path, ...], sweeps: int) -> None:
    """Print, of each recording, the share of calls that the best guess has right: expected, and in fact."""
    for recording in recordings:
        requests, calls = _times(recording)
        shares = shares_of_ways(requests, calls, sweeps)
        expected = np.mean([max(each.values()) for each in shares])
        right = np.mean([max(each, key=lambda request: each[request]) == call for call, each in enumerate(shares)])
        click.echo(f"{recording.name}: {len(calls):,} calls, {expected:.1%} expected right, {right:.1%} are")


if __name__ == "__main__":
    main()
