"""The conformance suite passes on a store in Postgres, and notices what is changed by hand."""

from __future__ import annotations

import json

import pyarrow as pa

from sqlrag import conformance
from sqlrag.engines.postgres import engine, lexical
from sqlrag.formats.push.to_postgres import PostgresTarget

FOLDER = conformance.corpus_folder()
GOLDEN = json.loads((FOLDER / "golden.json").read_text("utf-8"))
QUESTIONS = json.loads((FOLDER / "queries.json").read_text("utf-8"))
WANTED = conformance.without_codes(GOLDEN, QUESTIONS)


def found_on(postgres):
    return conformance.differences(WANTED, conformance.measure(FOLDER, url=postgres.url))


def schemas(postgres):
    return postgres.execute(r"SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sqlrag\_conformance%'")


def test_this_server_conforms_and_nothing_is_left_there(postgres):
    found = conformance.run(postgres.url)
    assert found.differences == ()
    assert found.chunks == len(GOLDEN["chunks"])
    assert found.rankings == len(GOLDEN["rankings"]) - sum("codes_pool" in question for question in QUESTIONS)
    assert schemas(postgres) == []


def test_another_order_of_the_vector_leg_is_noticed(postgres, monkeypatch):
    cosines = engine._cosines
    monkeypatch.setattr(engine, "_cosines", lambda rows, vector: [-c for c in cosines(rows, vector)])
    lines = found_on(postgres)
    assert {f"rankings {q['name']!r}" for q in QUESTIONS if q.get("plan", {}).get("mode") == "vector"} & {
        line.partition(":")[0] for line in lines
    }, lines


def test_another_bm25_is_noticed(postgres, monkeypatch):
    weighed = lexical.idf
    monkeypatch.setattr(lexical, "idf", lambda df, chunks: 1.001 * weighed(df, chunks))
    assert any("has the score" in line for line in found_on(postgres))


def test_other_chunks_are_noticed(postgres, monkeypatch):
    write = PostgresTarget.write

    def changed(self, batch):
        texts = [text.replace("e", "ee", 1) for text in batch.chunks["text"].to_pylist()]
        place = batch.chunks.schema.get_field_index("text")
        return write(self, batch._replace(chunks=batch.chunks.set_column(place, "text", pa.array(texts))))

    monkeypatch.setattr(PostgresTarget, "write", changed)
    assert any("sha256 is" in line for line in found_on(postgres))
    assert schemas(postgres) == []
