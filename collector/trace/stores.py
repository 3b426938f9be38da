"""Which store a URL is of."""

from collections.abc import Callable

from collector.trace.parquet_store import ParquetStore
from collector.trace.table_store import TableStore

STORES: dict[str, Callable[[str], TableStore]] = {"file": ParquetStore}
"""Stores by the scheme of their URLs. Other schemes are fsspec's (`memory://`, `s3://`, …), which `ParquetStore` reads
and writes too."""


def store_at(url: str) -> TableStore:
    """The store at a URL, or in a directory.

    Raises: `InputError` for a URL that nothing here opens.
    """
    scheme, separator, _ = url.partition("://")
    return STORES.get(scheme if separator else "file", ParquetStore)(url)
