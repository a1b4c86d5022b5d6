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
from sqlrag.retrieval import blocks, compressing, duplicates, fusion, reranking, rows

FOLDER = conformance.corpus_folder()
GOLDEN = json.loads((FOLDER / "golden.json").read_text("utf-8"))
QUESTIONS = {question["name"] for question in json.loads((FOLDER / "queries.json").read_text("utf-8"))}
COUNTED = (62, 60, 24)  # chunks, rankings, passages


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
    passages = [row for passages in GOLDEN["passages"].values() for row in passages]
    assert (len(GOLDEN["chunks"]), len(GOLDEN["rankings"]), len(passages)) == COUNTED
    assert (found.chunks, found.rankings, found.passages) == COUNTED
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
        (lambda g: g["rankings"]["hybrid"].reverse(), "rankings 'hybrid': ["),
        (lambda g: g["rankings"]["hybrid"][0].__setitem__(1, 0.5), "has the score"),
        (
            lambda g: g["rankings"]["ties after fusion"].insert(0, g["rankings"]["ties after fusion"].pop()),
            "ferry-c.md",
        ),
        (lambda g: g["rankings"].pop("Han"), "rankings 'Han': not in the golden file"),
        (lambda g: g["rankings"]["rerank by cosine"].reverse(), "rankings 'rerank by cosine': ["),
        (lambda g: g["dropped"]["repeats by words"][0].pop(), "dropped 'repeats by words': ["),
        (lambda g: g["dropped"]["repeats by words"].reverse(), "dropped 'repeats by words': ["),
        (lambda g: g["passages"]["compress a table"][0].__setitem__(1, 304), "passages 'compress a table': ["),
        (lambda g: g["passages"]["compress a table"][0][3][0].__setitem__(1, 344), "passages 'compress a table': ["),
        (lambda g: g["passages"].pop("compress a table"), "passages 'compress a table': not in the golden file"),
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


def by_name(score, candidate):
    return (-score, candidate.node_id)


def reversed_order(query, candidates, **options):
    found = rerank(query, candidates, **options)
    return found.holding(reversed(found))


def half_as_diverse(head, relevance, unit, diversity, wanted):
    return most_marginal(head, relevance, unit, diversity / 2, wanted)


def above_the_threshold(candidates, threshold):
    return by_words(candidates, threshold + 1e-6)


def last_is_kept(candidates, **options):
    """As if the worst of those that are the same were kept."""
    kept = drop_near_duplicates(candidates[::-1], **options)
    return kept[::-1]


def one_lost(earlier, new):
    return {kept: others[:1] for kept, others in joined(earlier, new).items()}


def a_character_less(text, **options):
    return [(start, end - 1) for start, end in sentence_spans(text, **options)]


def last_of_equal_sentences(sentences, matches, policy, share):
    last = len(sentences) - 1
    return {last - i for i in choose(sentences[::-1], matches[::-1], policy, share)}


rerank, most_marginal = reranking.rerank, reranking._most_marginal
by_words, joined, drop_near_duplicates = duplicates._by_words, duplicates._joined, duplicates.drop_near_duplicates
sentence_spans, choose = compressing.sentence_spans, compressing._choose


@pytest.mark.parametrize(
    ("module", "name", "change", "noticed"),
    [
        (blocks, "order_key", by_name, "['B.md#0', 'a.md#10', 'a.md#9', 'b.md#0'] and not"),
        (reranking, "order_key", by_name, "['a.md#10', 'a.md#9', 'b.md#0', 'B.md#0'] and not"),
        (reranking, "rerank", reversed_order, "rankings 'rerank by cosine': ["),
        (reranking, "_most_marginal", half_as_diverse, "rankings 'MMR by cosine': ["),
        (duplicates, "_by_words", above_the_threshold, "dropped 'repeats by words, up to the threshold"),
        (duplicates, "_SHINGLE", 2, "dropped 'repeats by words': ["),
        (duplicates, "_joined", one_lost, "dropped 'repeats by words': ["),
        (duplicates, "drop_near_duplicates", last_is_kept, "rankings 'repeats in two collections': ['second:"),
        (compressing, "sentence_spans", a_character_less, "passages 'compress a table': [['guides/pumps.md', 305, 344"),
        (compressing, "_choose", last_of_equal_sentences, "[['a.md', 141, 167, [[141, 167]]]] and not"),
    ],
)
def test_a_block_that_was_changed_is_noticed(monkeypatch, module, name, change, noticed):
    monkeypatch.setattr(module, name, change)
    lines = found_in(FOLDER)
    assert any(noticed in line for line in lines), lines


def test_the_order_of_the_candidates_decides_nothing_where_their_scores_do(monkeypatch):
    """Re-ranking of all candidates and fusion by scores see a set; the other blocks take the best first."""
    names = ("fuse weighted", "fuse convex", "rerank by cosine", "MMR by cosine", "MMR by the scores there are")
    assert set(names) <= QUESTIONS
    retrieve = blocks.retrieve
    monkeypatch.setattr(blocks, "retrieve", lambda *args: retrieve(*args)[::-1])
    lines = found_in(FOLDER)
    assert [line for line in lines if any(f" {name!r}: " in line for name in names)] == []
    assert any("'rerank the first three of six, keep five'" in line for line in lines)


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
        f"Specification {SPEC_VERSION}: 62 chunks, 60 rankings and 24 passages compared, no difference\n",
    )
    folder = tmp_path / "conformance"
    shutil.copytree(FOLDER, folder)
    (folder / "corpus" / "boats.md").unlink()
    monkeypatch.setattr(conformance, "corpus_folder", lambda: folder)
    done = CliRunner().invoke(app, ["conformance", "--format", "json"])
    assert done.exit_code == 1
    assert "chunk boats.md#0: missing" in json.loads(done.stdout)["differences"]
