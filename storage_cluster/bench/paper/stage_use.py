"""What the hosts used while a stage of a run went on."""

from storage_cluster.bench.results.folder import Run
from storage_cluster.bench.use import FILE_NAME, read_samples

Use = dict[tuple[str, str], float]
"""(host, metric) to its mean."""


def mean_use(run: Run, stage_name: str) -> Use:
    """The means over the samples of a stage; nothing without samples."""
    stage = next(stage for stage in run.info.stages if stage.name == stage_name)
    file = run.folder / FILE_NAME
    samples = read_samples(file) if file.exists() else []
    within = [each for each in samples if stage.started_ns < each.host_ns <= stage.ended_ns + 10**9]
    values: dict[tuple[str, str], list[float]] = {}
    for each in within:
        values.setdefault((each.host, each.metric), []).append(each.value)
    return {key: sum(found) / len(found) for key, found in values.items()}
