"""The index of a trace that a command has made on an object store."""

from collector.trace.objects import objects_at


def write_far_index(url: str) -> None:
    """Write the index of a trace on an object store beside it (`publish_index`); nothing for a directory.

    Raises: `InputError` if there is no trace, `ResourceError` if the index cannot be made or written.
    """
    if objects_at(url) is None:
        return
    from collector.queries.trace_index import publish_index  # noqa: PLC0415  (0.1 s, which most commands need not wait)

    publish_index(url)
