"""Where an analysis spends its CPU time: every stage by itself, one thread, on captures given by name.

    python -m benchmarks.profile CLIENT.pcap SERVER.pcap

The whole of `tracer replay` runs in one thread, its libraries' pools too, and the functions in `STAGES` are timed, each
without those that it calls. What is in none of them is the row before the last. CPU time, so that a busy machine gives
the same but for its caches. The last line is JSON: nanoseconds for each packet by stage, and `total`.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import reduce, wraps
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any, Self

ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Read by the libraries when they are imported, so the analysis is imported after they are set."""

ENCODE = "collector.trace.writing:RowEncoder.encode"
APPEND = "collector.trace.writing:TraceWriter.append_encoded"
REBUILD = "collector.analysis.rebuild_stage"
STAGES: dict[str, tuple[str, ...]] = {
    "decode": ("collector.capture_files.readers:CaptureReader.rows",),
    "note hosts, spread over partitions": ("collector.analysis.pipeline:scan",),
    "events of a partition": ("collector.decode.decoded:Decoder.take",),
    "match: the core": ("collector._core:match_events",),
    "match: columns out": ("collector.hops.matching:match",),
    "clocks: evidence": ("collector.clocks.evidence:ways_of", "collector.clocks.evidence:essential"),
    "clocks: solve": ("collector.clocks.solve:solve", "collector.analysis.pipeline:refine_steps"),
    "align": (f"{REBUILD}:align", f"{REBUILD}:settle_windows"),
    "exchanges": (f"{REBUILD}:build_exchanges",),
    "quality and troubles": (
        f"{REBUILD}:hop_counts",
        f"{REBUILD}:quality_of",
        "collector.findings.symptoms:collect_symptoms",
    ),
    "spans, findings": ("collector.requests.spans:link", "collector.findings.diagnosis:build_findings"),
    "write events": (f"{ENCODE}/events", f"{APPEND}/events"),
    "write hops": (f"{ENCODE}/hops", f"{APPEND}/hops"),
    "write the other tables": (ENCODE, APPEND),
}
"""Title to `module:name`; after a `/`, only calls whose first argument is that."""
REST = "the rest"


class Inline:
    """In place of a pool of threads: work is done where it is handed in."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shutdown(self) -> None:
        """Nothing to end."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """A result that is there already."""
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done


class Profile:
    """CPU seconds by stage, each without the stages it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self._inner = [0.0]

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Book the time that passes on a stage."""
        started = time.process_time()
        self._inner.append(0.0)
        try:
            yield
        finally:
            passed = time.process_time() - started
            self.seconds[title] += passed - self._inner.pop()
            self._inner[-1] += passed

    def with_timing(self, function: Callable[..., Any], titles: dict[str, str]) -> Callable[..., Any]:
        """`function`, booked on the title for its first argument after `self`, or else for ``."""

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            first = next((argument for argument in arguments if isinstance(argument, str)), "")
            with self.stage(titles.get(first, titles[""])):
                return function(*arguments, **named)

        @wraps(function)
        def steps(*arguments: Any, **named: Any) -> Iterator[Any]:
            items = function(*arguments, **named)
            while True:
                with self.stage(titles[""]):
                    item = next(items, None)
                if item is None:
                    return
                yield item

        return steps if isgeneratorfunction(function) else call


def places() -> Iterator[tuple[Any, str, dict[str, str]]]:
    """What is timed: its owner, its name there, and the titles by first argument."""
    titles: dict[str, dict[str, str]] = {}
    for title, names in STAGES.items():
        for name in names:
            place, _, argument = name.partition("/")
            titles.setdefault(place, {})[argument] = title
    for place, of_place in titles.items():
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        yield reduce(getattr, owners, importlib.import_module(module)), name, of_place


def _instrument(profile: Profile) -> None:
    for owner, name, titles in places():
        setattr(owner, name, profile.with_timing(getattr(owner, name), titles))
    for module in ("collector.analysis.pipeline", "collector.execution.engine", "collector.decode.host_capture"):
        vars(importlib.import_module(module))["ThreadPoolExecutor"] = Inline


def measure(files: list[Path]) -> dict[str, float]:
    """CPU nanoseconds for each packet by stage, the rest, and the total."""
    from collector.analysis import AnalysisOptions, analyse
    from collector.decode.host_capture import HostSource
    from collector.decode.input_limits import UNLIMITED

    profile = Profile()
    _instrument(profile)
    sources = [HostSource(file.stem, (file,)) for file in files]
    for _ in ("to load what is loaded at first use", "to be measured"):
        profile.seconds = dict.fromkeys(STAGES, 0.0)
        with tempfile.TemporaryDirectory(dir=files[0].parent) as folder:
            started = time.process_time()
            info = analyse(sources, str(Path(folder) / "trace"), options=AnalysisOptions(workers=1, limits=UNLIMITED))
            total = time.process_time() - started
    packets = sum(host.packets_count for host in info.hosts)
    of_stages = {title: seconds * 1e9 / packets for title, seconds in profile.seconds.items()}
    total_ns = total * 1e9 / packets
    return of_stages | {REST: total_ns - sum(of_stages.values()), "total": total_ns}


def table(found: dict[str, float]) -> list[str]:
    """As Markdown, in the order of the stages."""
    lines = ["| stage | CPU ns a packet | share |", "|---|---:|---:|"]
    return lines + [f"| {title} | {ns:,.0f} | {ns / found['total']:.0%} |" for title, ns in found.items()]


if __name__ == "__main__":
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    result = measure([Path(name) for name in sys.argv[1:]])
    print("\n".join(table(result)), file=sys.stderr)
    print(json.dumps(result))
