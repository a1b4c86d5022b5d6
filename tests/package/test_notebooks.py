"""The notebooks run offline, show what was committed with them, stay small and leave the file free after each cell."""

from __future__ import annotations

from itertools import pairwise

import duckdb
import nbformat
import pytest

from tests.support.handbook import numbers, words
from tests.support.helpers import real_model
from tests.support.refresh_notebooks import NOTEBOOKS, SCIFACT, handbook_digest, printed, run, working_copy
from tests.support.vector_cache import remembered

REFRESH = "python tests/support/refresh_notebooks.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder that all of them run in, so that the handbook is prepared once."""
    checkout = tmp_path_factory.mktemp("checkout")
    startup = checkout / "startup.py"
    startup.write_text("from tests.support import vector_cache\nvector_cache.remember()\n")
    with remembered(tmp_path_factory.getbasetemp()), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSTARTUP", str(startup))  # kernels run it
        yield working_copy(checkout)


@pytest.mark.slow
class TestRuns:
    pytestmark = real_model

    @pytest.mark.every
    @pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
    def test_a_run_shows_what_is_committed(self, notebook, folder):
        def file_is_free(cell):
            for file in folder.glob("*.duckdb"):
                with duckdb.connect(str(file)):  # for writing: nobody else may have it open
                    pass

        committed = nbformat.read(notebook, 4)
        if "SCIFACT" in str(committed) and not SCIFACT.is_dir():
            pytest.skip(f"needs {SCIFACT}")
        tags = [cell.metadata.get("tags", []) for cell in committed.cells if cell.cell_type == "code"]
        shown = printed(run(notebook, folder, file_is_free))
        for number, (kept, fresh) in enumerate(zip(printed(committed), shown, strict=True)):
            if "by-model" in tags[number]:
                # Processors differ in the last digits of a quantized model's vectors, by which a rank may hang.
                assert len(kept.splitlines()) == len(fresh.splitlines()), f"code cell {number} shows:\n{fresh}"
                continue
            assert words(kept) == words(fresh), f"code cell {number} shows (if that is right, {REFRESH}):\n{fresh}"
            assert numbers(kept) == pytest.approx(numbers(fresh), rel=0.02), f"code cell {number} shows:\n{fresh}"


@pytest.mark.every
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_the_handbook_of_now(notebook):
    committed = nbformat.read(notebook, 4)
    expected = handbook_digest() if "data/handbook" in str(committed) else None
    assert committed.metadata.get("handbook") == expected, f"pages were edited since: {REFRESH}"


@pytest.mark.every
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_can_be_read_without_running(notebook):
    assert notebook.stat().st_size < 200_000
    cells = nbformat.read(notebook, 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"]
    for before, cell in pairwise(cells):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown", f"no sentence says what this is for:\n{cell.source}"
    if "sql_only" in notebook.stem:
        assert "import sqlrag" not in "".join(cell.source for cell in code)
