"""How often the answering passage is first and in the first five: questions that people asked about DuckDB.

python -m tests.bench.passages

The questions in ``duckdb_questions.tsv`` are from public threads, in other words and some with typos; page and phrase
are of the passage in the documentation that answers, empty where none does. A passage is found where a result is of the
page and its text holds the phrase.
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from pathlib import Path

from sqlrag import Store, prepare_embeddings
from tests.bench.common import DATA, MINILM, environment, markdown_table
from tests.bench.quality import hybrid, question_vector

QUESTIONS = Path(__file__).with_name("duckdb_questions.tsv")
MODES = {
    "BM25": lambda store, text, _: store.lexical_query(text, top_k=5, syntax=False),
    "vectors": lambda store, text, vector: store.vector_query(text, top_k=5, query_vector=vector),
    "adaptive": hybrid(fusion="adaptive"),
    "adaptive, neighbours": hybrid(fusion="adaptive", context="neighbours"),
    "adaptive, section": hybrid(fusion="adaptive", context="section"),
    "RRF": hybrid(fusion="rrf"),
    "weighted": hybrid(fusion="weighted"),
    "convex": hybrid(fusion="convex"),
}


def place(results: list[dict[str, str]], page: str, phrase: str) -> int:
    """Return the place of the answering passage among the first five, from 1; 0 where it is not there."""
    holds = (
        row["doc_id"] == page and phrase in " ".join((row["context"] or row["text"]).split()) for row in results[:5]
    )
    return next((number for number, found in enumerate(holds, 1) if found), 0)


def main() -> None:
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        questions = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["page"]]
    print(f"{environment()}, no seed (nothing is drawn at random)\n")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pages = DATA / "docs" / "duckdb-current"
        built = prepare_embeddings(pages, Path(folder) / "kb.duckdb", embed_model_name=MINILM, verbose=False)
        with Store(built.path) as store:
            rows = []
            for name, mode in MODES.items():
                places = [
                    place(
                        list(mode(store, row["question"], question_vector(row["question"]))), row["page"], row["phrase"]
                    )
                    for row in questions
                ]
                first, five = sum(number == 1 for number in places), sum(number > 0 for number in places)
                rows.append([name, str(first), str(five), str(len(places))])
    print(markdown_table(["mode", "passage first", "in five", "questions"], rows))


if __name__ == "__main__":
    main()
