"""The drawings of the handbook are what ``data/make_drawings.py`` makes of the files of today."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET

import pytest

from tests.support.helpers import ROOT, real_model

pytestmark = real_model


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    made = runpy.run_path(str(ROOT / "data" / "make_drawings.py"))
    return made["drawings"](made["build"](tmp_path_factory.mktemp("drawn")))


@pytest.mark.parametrize(
    "name", ["pipeline.svg", "reference/tables.svg", "guides/a-search-taken-apart.svg", "guides/growth.svg"]
)
@pytest.mark.rest
def test_a_drawing_is_of_today_and_stands_in_a_page(drawn, name):
    drawing = drawn[name]
    assert (ROOT / "data" / "handbook" / name).read_text("utf-8") == drawing, "run: python data/make_drawings.py"
    root = ET.fromstring(drawing)
    assert root.find("{http://www.w3.org/2000/svg}title").text
    folder = (ROOT / "data" / "handbook" / name).parent
    shown = [page.name for page in folder.glob("*.md") if f"]({name.rpartition('/')[2]})" in page.read_text("utf-8")]
    assert len(shown) == 1
