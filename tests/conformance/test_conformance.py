"""The conformance suite passes here, and notices what is changed by hand."""

from __future__ import annotations

import copy
import json
import logging
import shutil
import subprocess
import sys

import pytest
from helpers import ROOT
from typer.testing import CliRunner

from sqlrag import SPEC_VERSION, conformance
from sqlrag.cli import app
from sqlrag.retrieval import fusion, rows

FOLDER = conformance.corpus_folder()
GOLDEN = json.loads((FOLDER / "golden.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("sqlrag").setLevel(logging.ERROR)
    yield
    logging.getLogger("sqlrag").setLevel(logging.NOTSET)


def found_in(folder, **options):
    return conformance.differences(GOLDEN, conformance.measure(folder, **options))


def test_this_machine_conforms():
    found = conformance.run()
    assert found.differences == ()
    assert (found.chunks, found.rankings) == (len(GOLDEN["chunks"]), len(GOLDEN["rankings"])) == (62, 32)
    assert GOLDEN["spec_version"] == SPEC_VERSION


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_change_nothing(threads):
    assert found_in(FOLDER, threads=threads) == []


def test_neither_another_place_nor_another_order_of_the_files_changes_anything(tmp_path):
    place = tmp_path / "ein anderer Ort"
    (place / "corpus").mkdir(parents=True)
    shutil.copy(FOLDER / "queries.json", place)
    files = sorted((file for file in (FOLDER / "corpus").rglob("*") if file.is_file()), reverse=True)
    for file in files:
        target = place / "corpus" / file.relative_to(FOLDER / "corpus")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert found_in(place) == []


def test_hash_seeds_change_nothing():
    code = (
        "import json, logging; logging.disable(logging.ERROR); from sqlrag import conformance as c; "
        "print(json.dumps(c.measure(c.corpus_folder())))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g["rankings"]["hybrid"].reverse(), "ranking 'hybrid': ["),
        (lambda g: g["rankings"]["hybrid"][0].__setitem__(1, 0.5), "has the score"),
        (
            lambda g: g["rankings"]["ties after fusion"].insert(0, g["rankings"]["ties after fusion"].pop()),
            "ferry-c.md",
        ),
        (lambda g: g["rankings"].pop("Han"), "ranking 'Han': not in the golden file"),
        (lambda g: g["chunks"][0].__setitem__(0, "boats.md#99"), "chunk boats.md#99: missing"),
        (lambda g: g["chunks"][0].__setitem__(2, 126), "chunk boats.md#0: i_end is 127 and not 126"),
        (lambda g: g["chunks"][0].__setitem__(6, "0"), "chunk boats.md#0: sha256"),
        (lambda g: g.__setitem__("spec_version", "0.9.0"), "version: 0.9.0"),
    ],
)
def test_a_golden_file_that_was_changed_by_hand_is_noticed(change, said):
    golden = copy.deepcopy(GOLDEN)
    change(golden)
    lines = conformance.differences(golden, GOLDEN)
    assert lines
    assert any(said in line for line in lines), lines


def test_another_tie_break_is_noticed(monkeypatch):
    ordered = fusion._rank

    def other(leg):
        """Ranks as fuse_legs does, but the last of equal ones first."""
        ranked = ordered([hit._replace(doc_id="".join(chr(0x10FFFF - ord(c)) for c in hit.doc_id)) for hit in leg])
        names = {hit.rid: hit.doc_id for hit in leg}
        return {rid: hit._replace(doc_id=names[rid]) for rid, hit in ranked.items()}

    monkeypatch.setattr(fusion, "_rank", lambda leg: other([fusion.LegHit(*hit) for hit in leg]))
    assert any("ties after fusion" in line for line in found_in(FOLDER))


def test_another_id_is_noticed(monkeypatch):
    chunk_rows = rows.chunk_rows

    def renamed(con, node_ids):
        return {key: {**row, "node_id": row["node_id"] + "x"} for key, row in chunk_rows(con, node_ids).items()}

    monkeypatch.setattr("sqlrag.retrieval.running.chunk_rows", renamed)
    assert len(found_in(FOLDER)) >= 25


def test_making_it_anew_shows_what_has_changed(tmp_path):
    folder = tmp_path / "conformance"
    shutil.copytree(FOLDER, folder)
    assert conformance.remake(folder) == []
    assert (folder / "golden.json").read_bytes() == (FOLDER / "golden.json").read_bytes()
    (folder / "corpus" / "boats.md").write_text("# Boats\n\nNothing floats.\n", "utf-8")
    assert any(line.startswith("chunk boats.md#0: i_end") for line in conformance.remake(folder))
    assert found_in(folder) != []
    assert conformance.remake(folder) == []


def test_the_command(monkeypatch, tmp_path):
    done = CliRunner().invoke(app, ["conformance"])
    assert (done.exit_code, done.stdout) == (
        0,
        f"Specification {SPEC_VERSION}: 62 chunks and 32 rankings compared, no difference\n",
    )
    folder = tmp_path / "conformance"
    shutil.copytree(FOLDER, folder)
    (folder / "corpus" / "boats.md").unlink()
    monkeypatch.setattr(conformance, "corpus_folder", lambda: folder)
    done = CliRunner().invoke(app, ["conformance", "--format", "json"])
    assert done.exit_code == 1
    assert "chunk boats.md#0: missing" in json.loads(done.stdout)["differences"]
