"""The notice that probably nothing is relevant: for how many questions with an answer, and without one, it is given.

python -m tests.bench.relevance [--only nfcorpus,xquad_zh] [--others 60]

Questions with an answer are the judged ones of a collection. Without one: of the English collections, those of each of
the others, as many as ``--others``, but for pairs about the same things; of XQuAD, whose file has the paragraphs of
every second article only, as many as five times that of those that ask for the others. Where "hashing" follows the
name, the same chunks are embedded by ``hashing-384``. Nothing is drawn at random.

At most 2 in 100 good questions may be noticed; that is what the thresholds in ``sqlrag/search/searcher.py`` are for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sqlrag import Store, load_embedder, reembed
from sqlrag.embedders import embed_texts
from tests.bench.common import environment, markdown_table
from tests.bench.quality import COLLECTIONS, judged, question_vector

if TYPE_CHECKING:
    from collections.abc import Iterable

    Question = tuple[str, np.ndarray | None]

ENGLISH = ("nfcorpus", "scifact", "handbook", "anthropic_docs", "duckdb_docs_qa")
XQUAD = ("xquad_en", "xquad_de", "xquad_ru", "xquad_zh")
ALIKE = ({"nfcorpus", "scifact"}, {"handbook", "duckdb_docs_qa"})
HASHED = ("handbook", "scifact", "xquad_en", "xquad_ru", "xquad_zh")
HASHING = "hashing-384"

# XQuAD has five paragraphs of each article, one after the other.
PARAGRAPHS = 5


def evenly(questions: list[Question], most: int) -> list[Question]:
    """Return at most so many of the questions, from all parts of the list."""
    return questions[:: -(-len(questions) // most)]


@cache
def hashed(text: str) -> np.ndarray:
    """Return the vector of a question by the hashing embedder."""
    return embed_texts(load_embedder(HASHING, provider="hashing"), [text], kind="query")[0]


def share_told(store: Store, questions: Iterable[Question], *, hashing: bool) -> tuple[float, int]:
    """Return the share of the questions that get the notice, and how many questions there are."""
    told = [
        any(
            notice.startswith("Probably nothing relevant")
            for notice in store.hybrid_query(
                text, query_vector=hashed(text) if hashing else question_vector(text) if vector is None else vector
            ).notices
        )
        for text, vector in questions
    ]
    return float(np.mean(told)), len(told)


def article(page: str) -> int:
    """Return the number of the article of a paragraph of XQuAD, such as "p12"."""
    return int(page.removeprefix("p")) // PARAGRAPHS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join((*ENGLISH, *XQUAD)))
    parser.add_argument("--others", type=int, default=60)
    given = parser.parse_args()
    print(f"{environment()}, no seed (nothing is drawn at random)\n")
    stores: dict[str, Store] = {}
    good: dict[str, list[Question]] = {}
    bad: dict[str, list[Question]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only.split(","):
            make, judgements, _ = COLLECTIONS[name]
            stores[name], asked = make(name, Path(folder))
            pages = {query: page for query, page, _ in judged(name, judgements[0])}
            questions = {query: (text, vector) for query, text, vector in asked if query in pages}
            if name in XQUAD:
                gone = {query for query in questions if article(pages[query]) % 2}
                documents = [f"p{number}" for number in range(240) if article(f"p{number}") % 2]
                stores[name].delete_documents(doc_ids=documents)
                bad[name] = evenly([questions[query] for query in questions if query in gone], 5 * given.others)
                questions = {query: question for query, question in questions.items() if query not in gone}
            good[name] = list(questions.values())
        for name in stores.keys() & set(ENGLISH):
            others = [other for other in good if other in ENGLISH and other != name and {name, other} not in ALIKE]
            # A question in another language is another matter.
            asked_of = {other: [question for question in good[other] if question[0].isascii()] for other in others}
            bad[name] = [question for other in others for question in evenly(asked_of[other], given.others)]
        rows = []
        for name, store in stores.items():
            for hashing in (False, True) if name in HASHED else (False,):
                if hashing:
                    store.close()
                    reembed(store.path, HASHING, provider="hashing", verbose=False)
                    store = Store(store.path)
                row = [f"{name}, hashing" if hashing else name]
                for questions in (good[name], bad[name]):
                    if questions:
                        share, number = share_told(store, questions, hashing=hashing)
                        row += [str(number), f"{share:.3f}"]
                rows.append(row)
                print(" | ".join(row), file=sys.stderr)  # as it goes on, since all of it takes an hour
            store.close()
    print(markdown_table(["collection", "questions with an answer", "told", "without one", "told"], rows))


if __name__ == "__main__":
    main()
