"""Normalising text and cleaning metadata."""

import datetime as dt
import decimal
import json
import math
import pathlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrag.errors import InputError
from sqlrag.normalizing import clean_metadata, normalize

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # surrogates included


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", ""),
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("page 1\x0cpage 2\x0bx\x85y", "page 1\npage 2\nx\ny"),
        ("tab\tstays", "tab\tstays"),
        ("n\x00u\x00l\x7f\x9b", "nul"),
        ("field\x1ffield\x1drecord", "field field record"),
        ("\ufefftext", "text"),
        ("\x00\ufeff\ufefftext", "text"),
        ("cafe\u0301", "caf\u00e9"),
        ("e\x00\u0301", "\u00e9"),  # what a removed character parted is composed as well
        ("x \ud835 y", "x \ufffd y"),
        ("\udc00\ud835", "\ufffd\ufffd"),
        ("\ud835\udc00", "\U0001d400"),  # a pair is a character, not two faults
        ("\u2028 \u00a0 \u200d", "\u2028 \u00a0 \u200d"),
    ],
)
def test_normalize(raw, expected):
    assert normalize(raw) == expected


@given(ANY_TEXT)
def test_normalized_text_is_stable_and_storable(text):
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once.encode("utf-8").decode("utf-8") == once
    assert not [c for c in once if unicodedata.category(c) == "Cc" and c not in "\n\t"]


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\ufffd")))
def test_no_letter_is_lost(text):
    assert normalize(text) == unicodedata.normalize("NFC", text)


def test_case_A6_lone_surrogate():
    assert normalize("x \ud835 y") == "x \ufffd y"
    assert clean_metadata({"t": "\ud835", "\ud835": {"n": ["\udfff"]}}) == {"t": "\ufffd", "\ufffd": {"n": ["\ufffd"]}}


def test_metadata_values_become_json():
    raw = {
        "date": dt.date(2024, 1, 31),
        "at": dt.datetime(2024, 1, 31, 12, 30, tzinfo=dt.timezone.utc),
        "nan": math.nan,
        "inf": [math.inf, -math.inf, 1.5],
        "set": {"b", "a"},
        "raw": b"\x00\xff",
        "tuple": (1, None, True),
        "price": decimal.Decimal("1.10"),
        "path": pathlib.PurePosixPath("a/b"),
        "float32": np.float32(0.5),
        "int64": np.int64(7),
        "nested": {1: {"deep": "CR\r\n"}},
    }
    assert clean_metadata(raw) == {
        "date": "2024-01-31",
        "at": "2024-01-31T12:30:00+00:00",
        "nan": None,
        "inf": [None, None, 1.5],
        "set": ["a", "b"],
        "raw": "AP8=",
        "tuple": [1, None, True],
        "price": "1.10",
        "path": "a/b",
        "float32": 0.5,
        "int64": 7,
        "nested": {"1": {"deep": "CR\n"}},
    }


def test_metadata_keys_are_written_as_json_writes_them():
    raw = {None: 1, True: 2, 3: 4, 1.5: 5, dt.date(2024, 1, 1): 6, ("a", 1): 7}
    assert list(clean_metadata(raw)) == ["null", "true", "3", "1.5", "2024-01-01", "a, 1"]


def test_integers_beyond_64_bits_become_strings():
    # JSON readers turn them into doubles: 2^63 - 1 is the largest that every one keeps.
    assert clean_metadata({"n": 2**63 - 1}) == {"n": 9223372036854775807}
    assert clean_metadata({"n": 2**63}) == {"n": "9223372036854775808"}
    assert clean_metadata({"n": 10**5000})["n"].startswith("0x")


def test_metadata_without_bound_is_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(InputError, match="32 levels"):
        clean_metadata({"a": endless})
    shared: list = ["lol"]
    for _ in range(9):
        shared = [shared] * 9
    with pytest.raises(InputError, match="10000 values"):
        clean_metadata({"a": shared})


@pytest.mark.parametrize("value", [object(), 1j, lambda: 0])
def test_a_value_that_json_cannot_hold_is_named(value):
    with pytest.raises(InputError, match=type(value).__name__):
        clean_metadata({"a": value})


def test_metadata_must_be_a_mapping():
    with pytest.raises(InputError, match="list"):
        clean_metadata(["a"])


@given(
    st.dictionaries(
        ANY_TEXT | st.integers() | st.none() | st.booleans(),
        st.recursive(
            ANY_TEXT | st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.dates(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | ANY_TEXT, inner, max_size=3),
            max_leaves=10,
        ),
        max_size=5,
    )
)
def test_cleaned_metadata_is_json_and_stable(metadata):
    cleaned = clean_metadata(metadata)
    text = json.dumps(cleaned, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == cleaned
    assert clean_metadata(cleaned) == cleaned
