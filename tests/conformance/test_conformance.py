"""The conformance suite passes here, and notices what is changed by hand."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import shutil
import subprocess
import sys
import textwrap

import pytest
from typer.testing import CliRunner

from sqlrag import SPEC_VERSION, conformance
from sqlrag.blocks import compress, fuse
from sqlrag.blocks import rerank as rerank_module
from sqlrag.blocks.rerank import _by_cosine, _by_words, _joined, _most_marginal, _shingles
from sqlrag.cli import app
from sqlrag.engines.duckdb import database, lexical, rows, schema
from sqlrag.ingest import sentences
from sqlrag.ranking import fusion, plan, terms, vectors
from tests.support.helpers import ROOT
from tests.support.residence import waiting_for_memory

FOLDER = conformance.corpus_folder()
GOLDEN = json.loads((FOLDER / "golden.json").read_text("utf-8"))
QUESTIONS = {question["name"]: question for question in json.loads((FOLDER / "queries.json").read_text("utf-8"))}
COUNTED = (61, 91, 37)  # chunks, rankings, passages


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("sqlrag").setLevel(logging.ERROR)
    yield
    logging.getLogger("sqlrag").setLevel(logging.NOTSET)


def found_in(folder, **options):
    return conformance.differences(GOLDEN, conformance.measure(folder, **options))


@pytest.mark.slow
def test_this_machine_conforms():
    found = conformance.run()
    assert found.differences == ()
    passages = [row for passages in GOLDEN["passages"].values() for row in passages]
    assert (len(GOLDEN["chunks"]), len(GOLDEN["rankings"]), len(passages)) == COUNTED
    assert (found.chunks, found.rankings, found.passages) == COUNTED
    assert GOLDEN["spec_version"] == SPEC_VERSION


@pytest.mark.rest
def test_memory_conforms(monkeypatch):
    answered = waiting_for_memory(monkeypatch)
    assert found_in(FOLDER, resident=True) == []
    assert answered["memory"] > len(GOLDEN["rankings"]) / 2  # the others are of blocks and small stores


@pytest.mark.rest
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_change_nothing(threads):
    assert found_in(FOLDER, threads=threads) == []


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
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


rerank, most_marginal = rerank_module.rerank, _most_marginal
by_words, joined, drop_near_duplicates = _by_words, _joined, rerank_module.drop_near_duplicates
sentence_spans, choose = compress.sentence_spans, compress._choose


@pytest.fixture(scope="module")
def corpus():
    with conformance.corpus_store(FOLDER) as store:
        yield store


@pytest.mark.rest
@pytest.mark.parametrize(
    ("module", "name", "change", "noticed"),
    [
        (fuse, "order_key", by_name, "['B.md#0', 'a.md#10', 'a.md#9', 'b.md#0'] and not"),
        (rerank_module, "order_key", by_name, "['a.md#10', 'a.md#9', 'b.md#0', 'B.md#0'] and not"),
        (rerank_module, "rerank", reversed_order, "rankings 'rerank by cosine': ["),
        (rerank_module, "_most_marginal", half_as_diverse, "rankings 'MMR by cosine': ["),
        (rerank_module, "_by_words", above_the_threshold, "dropped 'repeats by words, up to the threshold"),
        (rerank_module, "_SHINGLE", 2, "dropped 'repeats by words': ["),
        (rerank_module, "_joined", one_lost, "dropped 'repeats by words': ["),
        (rerank_module, "drop_near_duplicates", last_is_kept, "rankings 'repeats in two collections': ['second:"),
        (compress, "sentence_spans", a_character_less, "passages 'compress a table': [['guides/pumps.md', 305, 344"),
        (compress, "_choose", last_of_equal_sentences, "[['a.md', 141, 167, [[141, 167]]]] and not"),
    ],
)
def test_a_block_that_was_changed_is_noticed(monkeypatch, corpus, module, name, change, noticed):
    monkeypatch.setattr(module, name, change)
    unchanged = {"spec_version": SPEC_VERSION, "chunks": GOLDEN["chunks"]}
    found = unchanged | conformance._answers(corpus, [*QUESTIONS.values()], conformance._stored)
    lines = conformance.differences(GOLDEN, found)
    assert any(noticed in line for line in lines), lines


def rewritten(function, old, new):
    """Return the code of a function with a piece of its source replaced, and how often the piece was found."""
    source = textwrap.dedent(inspect.getsource(function))
    code = compile("from __future__ import annotations\n" + source.replace(old, new), __file__, "exec")
    names = {}
    exec(code, function.__globals__, names)
    return names[function.__name__].__code__, source.count(old)


TIE = "-hit.score, hit.doc_id, hit.chunk_index, hit.rid"
AFTER_FUSION = "ties after fusion by doc_id, then chunk_index as a number"


@pytest.mark.parametrize(
    ("function", "old", "new", "name"),
    [
        (fusion.fuse_legs, TIE, "-hit.score, hit.chunk_index, hit.doc_id", AFTER_FUSION),
        (fusion.fuse_legs, TIE, "-hit.score, hit.rid", AFTER_FUSION),
        (fusion.fuse_legs, TIE, "-hit.score, hit.doc_id", AFTER_FUSION),
        (fusion.fuse_legs, TIE, "-hit.score, hit.chunk_index, hit.doc_id", "ties of fused ranks"),
        (fusion.fuse_legs, TIE, "-hit.score, hit.rid", "ties of fused ranks"),
        (fusion.reciprocal_rank_fusion, "(-x[1], x[0])", "-x[1]", "ties of ids by code point"),
        (fusion.reciprocal_rank_fusion, "best.setdefault(item, rank)", "best[item] = rank", "an id twice in a ranking"),
        (fusion._min_max, "else 1.0", "else 0.0", "fuse weighted where a list has no spread"),
        (fusion._rounded, "round(float(score), DECIMALS)", "score", "fuse weighted where a list has no spread"),
        (rerank_module.drop_near_duplicates, ".casefold()", ".lower()", "repeats but for ß"),
        (rerank_module.drop_near_duplicates, "in kept if", "in kept[::-1] if",
         "a repeat of two goes to the better one"),
        (_by_cosine, "rounded(unit[i : i + 256] @ unit.T)", "(unit[i : i + 256] @ unit.T).round(3)",
         "repeats by cosine, up to the threshold"),
        (_by_cosine, ">= threshold", "> threshold", "repeats by cosine, up to the threshold"),
        (_shingles, "max(1,", "max(0,", "repeats of fewer words than a run"),
        (compress._score, "1 - _B + _B", "1 - 0 + 0", "compress, a shorter sentence is better"),
        (compress._score, "_K1 * (", "1.3 * (", "compress as by default"),
        (compress._in_turn, "(before, after) if", "(after, before) if", "compress, what is before comes first"),
        (compress._in_turn, "<= window", "<= 1", "compress with two sentences around"),
        (compress._choose, "policy.max_chars * share", "policy.max_chars",
         "compress what overlaps to the characters of both"),
        (compress._choose, "break", "pass", "compress to a beginning where no word matches"),
        (rows._joined, "gap is None", "not gap", "compress what touches"),
        (rows._gap, "blank if ", "None if ", "compress with neighbours beyond blank lines"),
        (sentences._blocks, "_WHOLE | ", "{'tr_open'} | ", "compress what is one sentence in Markdown"),
        (terms.idf, "+ 0.5", "+ 1", "compress as by default"),
        (terms.ascii_words, "ASCII_WORD", "ASCII_NAME", "words of names"),
        (terms.ascii_parts, "COMPOUND.search(name)", "'_' in name", "words of names"),
        (lexical.asked, "word not in stops", "word", "hybrid"),
        (vectors.query_weights, "20, 60, 85", "30, 60, 85", "the best by their codes"),
        (vectors.query_weights, "20, 60, 85", "20, 60, 95", "the best by their codes"),
        (vectors.query_weights, " & ((sizes < two) | (sizes >= three))", "", "the best by their codes"),
        (vectors.query_code, "vector >= 0", "vector < 0", "the best by their codes"),
        (plan._bm25, "float(options.k1)", "1.25", "lexical"),
        (plan._bm25, "float(options.b)", "0.7", "lexical"),
    ],
)  # fmt: skip
def test_a_rule_that_was_changed_is_noticed(monkeypatch, corpus, function, old, new, name):
    wanted = {kind: {name: GOLDEN[kind][name]} if name in GOLDEN[kind] else {} for kind in conformance.KINDS}
    unchanged = {"spec_version": SPEC_VERSION, "chunks": []}

    def lines():
        found = conformance._answers(corpus, [QUESTIONS[name]], conformance._stored)
        return conformance.differences(unchanged | wanted, unchanged | found)

    assert lines() == []
    code, count = rewritten(function, old, new)
    assert count > 0
    monkeypatch.setattr(function, "__code__", code)
    assert lines() != []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("macro", "old", "new", "names"),
    [
        ("lexical_search", "DESC, d.doc_id, d.chunk_index", "DESC, d.chunk_index, d.doc_id",
         ["ties of documents, lexical"]),
        ("lexical_search", "DESC, d.doc_id, d.chunk_index", "DESC, d.rid", ["ties of documents, lexical", "lexical"]),
        ("vector_search", "DESC, doc_id, chunk_index", "DESC, chunk_index, doc_id", ["ties of documents, vector"]),
        ("vector_search", "NULLS LAST, s.doc_id, s.chunk_index", "NULLS LAST, s.rid",
         ["a tie where the vector leg ends"]),
        ("exact_vector_search", "DESC, d.doc_id, d.chunk_index", "DESC, d.rid", ["ties of documents, exact", "exact"]),
        ("json_value_key", "AS DOUBLE) AS HUGEINT", "AS DOUBLE) + 1 AS HUGEINT", ["metadata, a number by its value"]),
    ],
)  # fmt: skip
def test_a_macro_that_was_changed_is_noticed(monkeypatch, macro, old, new, names):
    read_sql = schema.read_sql

    def changed(name):
        return read_sql(name).replace(old, new) if name == f"macros/{macro}" else read_sql(name)

    assert old in read_sql(f"macros/{macro}")
    monkeypatch.setattr(schema, "read_sql", changed)
    monkeypatch.setattr(database, "_empty", {})
    monkeypatch.setenv("SQLRAG_TRUST", "1")  # a file with such a macro is not opened otherwise
    lines = found_in(FOLDER)
    for name in names:
        assert any(line.startswith(f"rankings {name!r}: ") for line in lines), lines


@pytest.mark.rest
def test_the_order_of_the_candidates_decides_nothing_where_their_scores_do(monkeypatch):
    """Re-ranking of all candidates and fusion by scores see a set; the other blocks take the best first."""
    names = ("fuse weighted", "fuse convex", "rerank by cosine", "MMR by cosine", "MMR by the scores there are")
    assert set(names) <= set(QUESTIONS)
    retrieve = fuse.retrieve
    monkeypatch.setattr(fuse, "retrieve", lambda *args, **options: retrieve(*args, **options)[::-1])
    lines = found_in(FOLDER)
    assert [line for line in lines if any(f" {name!r}: " in line for name in names)] == []
    assert any("'rerank the first three of six, keep five'" in line for line in lines)


@pytest.mark.rest
def test_another_id_is_noticed(monkeypatch):
    chunk_rows = rows.chunk_rows

    def renamed(con, node_ids):
        return {key: {**row, "node_id": row["node_id"] + "x"} for key, row in chunk_rows(con, node_ids).items()}

    monkeypatch.setattr(rows, "chunk_rows", renamed)
    assert len(found_in(FOLDER)) >= 25


@pytest.mark.rest
def test_making_it_anew_shows_what_has_changed(tmp_path):
    folder = tmp_path / "conformance"
    shutil.copytree(FOLDER, folder)
    assert conformance.remake(folder) == []
    assert (folder / "golden.json").read_bytes() == (FOLDER / "golden.json").read_bytes()
    (folder / "corpus" / "boats.md").write_text("# Boats\n\nNothing floats.\n", "utf-8")
    assert any(line.startswith("chunk boats.md#0: i_end") for line in conformance.remake(folder))
    assert found_in(folder) != []
    assert conformance.remake(folder) == []


@pytest.mark.slow
def test_the_command(monkeypatch, tmp_path):
    done = CliRunner().invoke(app, ["conformance"])
    assert (done.exit_code, done.stdout) == (
        0,
        f"Specification {SPEC_VERSION}: 61 chunks, 91 rankings and 37 passages compared, no difference\n",
    )
    folder = tmp_path / "conformance"
    shutil.copytree(FOLDER, folder)
    (folder / "corpus" / "boats.md").unlink()
    monkeypatch.setattr(conformance, "corpus_folder", lambda: folder)
    done = CliRunner().invoke(app, ["conformance", "--format", "json"])
    assert done.exit_code == 1
    assert "chunk boats.md#0: missing" in json.loads(done.stdout)["differences"]
