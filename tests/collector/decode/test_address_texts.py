"""Texts of addresses are in one array, and behave as a sequence of strings."""

import pickle

import pyarrow as pa

from collector.decode.address_texts import AddressTexts

TEXTS = ["fe80::1:2:3:4:5", "10.0.0.10", "10.0.0.9", "fe80::1:2:3:4:4", "10.0.0.1", "::1"]


def test_texts_are_found_by_number_and_put_in_order() -> None:
    found = pickle.loads(pickle.dumps(AddressTexts(pa.array(TEXTS, pa.string()))))
    assert (len(found), list(found), found[1], found[-1]) == (6, TEXTS, "10.0.0.10", "::1")
    assert [TEXTS[number] for number in found.order()] == sorted(TEXTS)
    assert [TEXTS[number + 2] for number in found[2:].order()] == sorted(TEXTS[2:])


def test_no_addresses_have_an_order() -> None:
    assert AddressTexts(pa.array([], pa.string())).order().tolist() == []
