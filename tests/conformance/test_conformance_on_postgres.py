"""The conformance suite passes on a store in Postgres, and notices what is changed by hand."""

from __future__ import annotations

import copy
import json

import pyarrow as pa

from sqlrag import conformance
from sqlrag.engines.postgres import engine
from sqlrag.formats.push.to_postgres import PostgresTarget

FOLDER = conformance.corpus_folder()
GOLDEN = json.loads((FOLDER / "golden.json").read_text("utf-8"))
WORDS = json.loads((FOLDER / conformance.POSTGRES).read_text("utf-8"))
WANTED = conformance.with_words_of_postgres(GOLDEN, WORDS)
QUESTIONS = json.loads((FOLDER / "queries.json").read_text("utf-8"))


def changed_sql(monkeypatch, name, old, new):
    read_sql = engine.read_sql

    def read(asked):
        text = read_sql(asked)
        if asked != name:
            return text
        assert old in text
        return text.replace(old, new)

    monkeypatch.setattr(engine, "read_sql", read)


def found_on(postgres):
    return conformance.differences(WANTED, conformance.measure(FOLDER, url=postgres.url))


def schemas(postgres):
    return postgres.execute(r"SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sqlrag\_conformance%'")


def test_this_server_conforms_and_nothing_is_left_there(postgres):
    found = conformance.run(postgres.url)
    assert found.differences == ()
    assert found.chunks == len(GOLDEN["chunks"])
    assert found.rankings == len(GOLDEN["rankings"]) - len(WORDS["left_out"])
    assert schemas(postgres) == []


def test_only_what_words_decide_is_of_postgres():
    worded = {question["name"] for question in QUESTIONS if conformance.by_words(question)}
    for kind in conformance.KINDS:
        assert WORDS[kind].keys() == (GOLDEN[kind].keys() & worded) - set(WORDS["left_out"])
        for name in GOLDEN[kind].keys() - worded - set(WORDS["left_out"]):
            assert WANTED[kind][name] == GOLDEN[kind][name]


def test_golden_files_that_were_changed_by_hand_are_noticed():
    vector = next(q["name"] for q in QUESTIONS if q.get("plan", {}).get("mode") == "vector")
    lexical = next(q["name"] for q in QUESTIONS if q.get("plan", {}).get("mode") == "lexical")
    for name in (vector, lexical):
        golden = copy.deepcopy(WANTED)
        golden["rankings"][name].reverse()
        assert any(line.startswith(f"rankings {name!r}") for line in conformance.differences(golden, WANTED))


def test_another_order_of_the_vector_leg_is_noticed(postgres, monkeypatch):
    cosines = engine._cosines
    monkeypatch.setattr(engine, "_cosines", lambda rows, vector: [-c for c in cosines(rows, vector)])
    lines = found_on(postgres)
    assert {f"rankings {q['name']!r}" for q in QUESTIONS if q.get("plan", {}).get("mode") == "vector"} & {
        line.partition(":")[0] for line in lines
    }, lines


def test_other_weights_of_words_are_noticed(postgres, monkeypatch):
    changed_sql(monkeypatch, "postgres/lexical_search", "%(weights)s::real[]", "'{1, 1, 1, 1}'::real[]")
    lines = found_on(postgres)
    assert lines
    worded = {question["name"] for question in QUESTIONS if conformance.by_words(question)}
    named = {line.split("'")[1] for line in lines}
    assert named <= worded, named - worded


def test_other_chunks_are_noticed(postgres, monkeypatch):
    write = PostgresTarget.write

    def changed(self, batch):
        texts = [text.replace("e", "ee", 1) for text in batch.chunks["text"].to_pylist()]
        place = batch.chunks.schema.get_field_index("text")
        return write(self, batch._replace(chunks=batch.chunks.set_column(place, "text", pa.array(texts))))

    monkeypatch.setattr(PostgresTarget, "write", changed)
    assert any("sha256 is" in line for line in found_on(postgres))
    assert schemas(postgres) == []
