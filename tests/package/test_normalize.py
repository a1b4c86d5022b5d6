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
from sqlrag.normalize import clean_metadata, is_blank, normalize

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # surrogates included


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", ""),
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("page 1\x0cpage 2\x0bx\x85y", "page 1\npage 2\nx\ny"),
        ("tab\tstays", "tab\tstays"),
        ("n\x00u\x00l\x7f\x9b", "n u l"),
        ("field\x1ffield\x1drecord", "field field record"),
        ("\ufefftext", "text"),
        ("\x00\ufeff\ufefftext", "text"),
        ("\x1b[1;31mred\x1b[0m a\x1b[Kb \x1b7", "red ab 7"),
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
        "at": dt.datetime(2024, 1, 31, 12, 30, tzinfo=dt.UTC),
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
        "price": 1.1,
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


@pytest.mark.parametrize(
    ("text", "stored"),
    [("1.50", 1.5), ("3", 3), ("3.00", 3), ("1E+2", 100), ("-0.1", -0.1), ("NaN", None), ("Infinity", None)]
    # What a float would change.
    + [(text, text) for text in ("0.12345678901234567890", "12345678901234567890.5", "1E+400")]
    + [(str(2**53), 2**53), (f"{10**17}.0", 10**17), (str(2**63), str(2**63)), ("1E-30", 1e-30)],
)
def test_decimals_become_numbers_that_have_all_of_their_digits(text, stored):
    found = clean_metadata({"n": decimal.Decimal(text)})["n"]
    assert (found, type(found)) == (stored, type(stored))


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("foo\0bar zeta", "foo bar zeta"),
        ("foo\x01\x7f\x80bar", "foo bar"),
        ("foo\ufeff\0\ufeffbar", "foo bar"),
        ("foo\ufeffbar", "foobar"),
        ("foo\0 bar\0", "foo bar"),
        ("7\x0892", "7 92"),
        ("東\0京", "東 京"),
        ("foo.\0bar", "foo.bar"),
        ("e\0\u0301", "\u00e9"),
    ],
)
def test_fault_T6_a_control_character_between_letters_is_a_space(raw, expected):
    assert normalize(raw) == expected
    assert normalize(expected) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("N\bNA\bAM\bME\bE\n   _\bl_\bs", "NAME\n   ls"),
        ("_\bN\bN+\b+", "N+"),
        ("N\bN\bN\bN", "N"),
        ("a_\b b\b\n", "a_ b\n"),
    ],
)
def test_letters_that_are_struck_over_are_one(raw, expected):
    """As nroff writes bold and underlined words of manual pages."""
    assert normalize(raw) == expected
    assert normalize(expected) == expected


INVISIBLE = "\u200b\u200d\u2060\u00ad\u200e\u202a\ufeff\u3164\u2800\u115f\ufe0f\U000e0020\U000e0100\u00a0\u3000\0\t\n"


def test_fault_T8_invisible_is_blank():
    assert all(map(is_blank, INVISIBLE))
    assert is_blank(INVISIBLE)
    assert is_blank("")
    assert not any(is_blank(text) for text in ("a", ".", "\u0301", "\u0600", "\u2801", "\ufffd", INVISIBLE + "x"))


def test_what_unicode_calls_a_format_character_is_blank_or_has_ink():
    """Arabic signs of numbers and their like are format characters and have ink."""
    formats = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) in ("Cf", "Cc", "Zs", "Zl", "Zp")]
    names = {unicodedata.name(c, "").split()[0] for c in formats if not is_blank(c)}
    assert names <= {"ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND"}


@pytest.mark.parametrize("first", range(128))
def test_plain_ascii_is_normalised_as_any_text(first):
    """It has a shortcut, which a dash at the end closes."""
    for second in range(128):
        text = f"a{chr(first)}{chr(second)}[0mb"
        assert normalize(text + " –") == normalize(text) + " –"
