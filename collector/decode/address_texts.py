"""The texts of addresses by number, kept in one array: of a flood's forged addresses hardly any is looked at."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.trace.arrow import texts


class AddressTexts(Sequence[str]):
    """Texts of n addresses. Cost: about 20 bytes an address, where as many Python strings take 70."""

    def __init__(self, array: pa.StringArray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> "AddressTexts": ...
    def __getitem__(self, number: int | slice) -> "str | AddressTexts":
        if isinstance(number, slice):
            return AddressTexts(self.array[number])
        text: str = self.array[number].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.array.to_pylist())

    def order(self) -> NDArray[np.int64]:
        """The numbers of the addresses in the order of their texts: shape (n,)."""
        columns = texts(self.array)
        return _core.order_of_texts(columns["offsets"], columns["bytes"]).astype(np.int64)
