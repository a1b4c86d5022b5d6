"""Stores that answer from memory, and random questions to compare them with those that answer by SQL."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import Settings, SqlragError, Store, Stores
from sqlrag.engines.resident import follow, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    Question = tuple[str, str, dict[str, Any]]

WAIT = 120


def in_memory(path: Path, resident_mb: int = 2000, *, rounded: bool = False, **options: Any) -> Store:
    """Open a store whose arrays are in memory before the first question; with room for rounded vectors alone."""
    if rounded:
        with Store(path, resident=False) as by_sql:
            sizes = [load.size(by_sql.cursor(), by_sql.dimensions, rounded=one) for one in (False, True)]
        residence = follow.residence_of(path, resident_mb)
        residence.stays, residence.most_bytes = True, sum(sizes) // 2  # as those of a server, whose budget is its own
    store = Store(path, resident=True, settings=Settings(resident_mb=resident_mb), **options)
    settle(store)
    return store


def settle(store: Store | Stores) -> None:
    """Wait until the arrays of a store, or of each of its files, that is to have them are there."""
    engine: Any = store._engine
    until = time.monotonic() + WAIT
    for one in getattr(engine, "parts", [engine]):
        while time.monotonic() < until:
            index, reason = one.residence.index(one.database)
            if index is not None or reason not in follow.ON_THEIR_WAY:
                break
            one.residence.wait(0.01)
            time.sleep(0.01)


def waiting_for_memory(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Let every store that is to answer from memory wait for it; return what answered how often, or why not memory."""
    answered: Counter[str] = Counter()
    index_of = follow.Residence.index

    def index(residence: Any, database: Any) -> Any:
        found = index_of(residence, database)
        until = time.monotonic() + WAIT
        while found[0] is None and found[1] in follow.ON_THEIR_WAY and time.monotonic() < until:
            residence.wait(0.01)
            found = index_of(residence, database)
        answered[found[1] or "memory"] += 1
        return found

    patch.setattr(follow.Residence, "index", index)
    return answered


_HYBRID: tuple[dict[str, Any], ...] = (
    *({}, {}, {"fusion": "rrf"}, {"fusion": "convex"}, {"fusion": "weighted"}, {"feedback": 2}, {"expansion": 5}),
    *({"per_document": 1}, {"vector_top_k": 20, "lexical_top_k": 10}, {"vector_top_k": 0}, {"lexical_top_k": 0}),
    *({"context": "neighbours"}, {"include_source_docs": True}),
)
_LEXICAL: tuple[dict[str, Any], ...] = ({}, {"conjunctive": True}, {"syntax": False})
_WORDS: tuple[dict[str, Any], ...] = (
    *({}, {}, {"k1": 0.9, "b": 0.4}, {"k1": 0}, {"fields": "text"}, {"fields": "heading_path"}),
    {"heading_weight": 0.5},
)
_VECTOR: tuple[dict[str, Any], ...] = ({}, {}, {"min_similarity": 0.2}, {"codes_pool": 50}, {"codes_pool": 1})
_FILTERS: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"collection": "default"}, {"collection": ["default", "nowhere"]}, {"tags_all": ["nowhere"]}),
    *({"metadata": {"mime": "text/markdown"}}, {"metadata": {"$not": {"title": {"$exists": True}}}}),
)


def _filters(con: Any, chosen: random.Random) -> tuple[dict[str, Any], ...]:
    """Return filters by documents and tags of a store, which few chunks pass, or many, or all but few."""
    named = [name for (name,) in con.execute("SELECT DISTINCT doc_id FROM documents ORDER BY doc_id").fetchall()]
    tags = [tag for (tag,) in con.execute("SELECT DISTINCT unnest(tags) AS tag FROM documents ORDER BY tag").fetchall()]
    few, many = (chosen.sample(named, min(count, len(named))) for count in (2, 40))
    of_documents = [{"$doc_id": few[0]}, {"$doc_id": {"$in": many}}, {"$doc_id": {"$nin": few}}]
    of_tags = [{"tags_any": chosen.sample(tags, min(3, len(tags)))}, {"tags_all": tags[:1]}] if tags else []
    return (*_FILTERS, *({"metadata": condition} for condition in of_documents), *of_tags)


def random_questions(store: Store, count: int, seed: int = 1) -> Iterator[Question]:
    """Yield searches: the mode, the question, and the options. Words are of the store, some of them of no chunk."""
    chosen, vectors = random.Random(seed), np.random.default_rng(seed)
    con = store.cursor()
    texts = [text for (text,) in con.execute("SELECT text FROM documents ORDER BY rid").fetchall()]
    words = [word for (word,) in con.execute("SELECT word FROM fts_main_documents.words ORDER BY word").fetchall()]
    stored = con.execute("SELECT embedding FROM documents ORDER BY rid LIMIT 500").fetchnumpy()["embedding"]
    filters = _filters(con, chosen)
    for _ in range(count):
        text = chosen.choice(texts).split()
        start = chosen.randrange(max(1, len(text)))
        asked = text[start : start + chosen.choice([1, 2, 3, 5, 8, 15])] or ["what"]
        if chosen.random() < 0.2:
            asked += [chosen.choice(words) for _ in range(chosen.choice([1, 3]))]
        if chosen.random() < 0.05:
            asked += [f"zzqq{chosen.choice(words)}"]
        question, mode = " ".join(asked), chosen.choice(["hybrid"] * 4 + ["vector", "lexical"])
        options = {"top_k": chosen.choice([1, 5, 10, 30, 120]), **chosen.choice(filters)}
        if mode != "vector":
            options |= chosen.choice(_WORDS)
        if mode == "lexical":
            options |= chosen.choice(_LEXICAL)
            question = f'"{question}"' if chosen.random() < 0.2 else question
        else:
            near = np.array(chosen.choice(stored), dtype=np.float32) if chosen.random() < 0.7 else 0
            noise = vectors.normal(0, 0.02, store.dimensions).astype(np.float32)
            options |= {**chosen.choice(_VECTOR), "query_vector": near + noise}
        if mode == "hybrid":
            options |= chosen.choice(_HYBRID)
        yield mode, question, options


def same(one: Store, other: Store, mode: str, question: str, options: dict[str, Any]) -> str:
    """Ask two stores the same, and return in what their answers differ; blank where they do not."""
    wanted, found = (_answer(store, mode, question, options) for store in (one, other))
    if wanted == found:
        return ""
    differing = [place for place, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b]
    return f"{mode} {question!r} {options}: {differing}: {[(wanted[place], found[place]) for place in differing[:2]]}"


def _answer(store: Store, mode: str, question: str, options: dict[str, Any]) -> list[Any]:
    try:
        found = getattr(store, f"{mode}_query")(question, **options)
    except SqlragError as error:
        return [str(error)]
    answer: list[Any] = [found.notices, found.candidates, found.sql, found.further, *found]
    shown = ("per_document", "context", "include_source_docs")
    if found:
        known = {name: value for name, value in options.items() if name not in shown}
        answer.append(store.explain(question, found[-1]["node_id"], mode=mode, **known))
    return answer
