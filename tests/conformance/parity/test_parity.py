"""Every surface answers the same 20 questions (5 in a quick run) with the same ids, in one order, with equal scores.

What Python's functions return for a file is the measure. The other surfaces are asked as their users ask them: a
statement in a DuckDB connection that knows nothing of sqlrag, the command line, HTTP, MCP, llama-index, LangChain.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import json
from contextlib import ExitStack
from pathlib import Path

import anyio
import duckdb
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app
from sqlrag.engines.duckdb.legs import default_pool
from sqlrag.engines.duckdb.schema import for_dimensions, read_sql
from tests.support.residence import in_memory, random_questions, same

ROOT = Path(__file__).parents[3]
QUESTIONS = [json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()][
    :20
]
MODEL = "hashing-256"
TOP_K = 8
TOLERANCE = 1e-9
FILTERED = 15
FEW = 5

# How a question is asked: the mode, and the filters. With filters the first of the questions are enough.
WAYS = {
    "hybrid": ("hybrid", {}),
    "hybrid with tags": ("hybrid", {"tags_any": ["search", "start", "help"]}),
    "hybrid with metadata": ("hybrid", {"metadata": {"mime": {"$in": ["text/markdown"]}, "title": {"$exists": True}}}),
    "vector": ("vector", {}),
    "lexical": ("lexical", {}),
    "lexical with tags": ("lexical", {"tags_any": ["search", "start", "help"]}),
}


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    """Return the handbook as a file, with the vectors of the questions, as ``sqlrag embed`` puts them there.

    It is held open for reading, so that no question of the thousands has to open it anew.
    """
    path = tmp_path_factory.mktemp("parity") / "kb.duckdb"
    sqlrag.prepare_embeddings(ROOT / "data" / "handbook", path, 200, MODEL, embedding_provider="hashing", verbose=False)
    with sqlrag.Store(path, read_only=False) as store:
        for question in QUESTIONS:
            store.embed_query(question)
    with sqlrag.Store(path):
        yield path


@pytest.fixture(scope="module")
def expected(kb):
    """Return a function that gives what Python answers to questions asked in a way; each is asked once."""
    ask = functools.cache(lambda way, question: python(kb, question, *WAYS[way]))
    return lambda way, questions: [ask(way, question) for question in questions]


def questions_of(way):
    return QUESTIONS[:FILTERED] if WAYS[way][1] else QUESTIONS


def pairs(rows):
    return [(row["node_id"], row["score"]) for row in rows]


def python(path, question, mode, filters):
    return pairs(getattr(sqlrag, f"{mode}_query")(question, path, top_k=TOP_K, **filters))


class Surface:
    """One way into a file. ``modes`` are those it has; ``ask`` returns (node_id, score) of the results, in order."""

    modes = ("hybrid", "vector", "lexical")

    def __init__(self, path):
        self.path = path
        self.stack = ExitStack()

    def ask(self, question, mode, filters):
        raise NotImplementedError


class OpenStore(Surface):
    def __init__(self, path):
        super().__init__(path)
        self.store = self.stack.enter_context(sqlrag.Store(path))

    def ask(self, question, mode, filters):
        return pairs(getattr(self.store, f"{mode}_query")(question, top_k=TOP_K, **filters))


class InMemory(Surface):
    """An open store whose arrays are in memory, with the same questions."""

    def __init__(self, path):
        super().__init__(path)
        self.store = self.stack.enter_context(in_memory(path))

    def ask(self, question, mode, filters):
        found = getattr(self.store, f"{mode}_query")(question, top_k=TOP_K, **filters)
        assert found.methods["engine"] == "memory"
        return pairs(found)


class Coroutines(Surface):
    def ask(self, question, mode, filters):
        search = getattr(sqlrag, f"a{mode}_query")
        return pairs(asyncio.run(search(question, self.path, top_k=TOP_K, **filters)))


class Blocks(Surface):
    """``retrieve`` and ``package``, the blocks that programs of their own are made of."""

    def ask(self, question, mode, filters):
        filters = {name: tuple(value) if isinstance(value, list) else value for name, value in filters.items()}
        with sqlrag.Store(self.path) as store:
            plan = sqlrag.RetrievePlan(mode=mode, k=TOP_K, fusion="adaptive", candidate_pool=100, **filters)
            return pairs(sqlrag.package(sqlrag.retrieve(question, plan, store), query_text=question))


class SqlMacro(Surface):
    """A connection that knows nothing of sqlrag: the macros are in the file."""

    VECTOR = "(SELECT embedding FROM query_embeddings WHERE query_text = $question)"

    def __init__(self, path):
        super().__init__(path)
        self.con = self.stack.enter_context(duckdb.connect(str(path), read_only=True))

    def ask(self, question, mode, filters):
        bound = {name: json.dumps(value) if name == "metadata" else value for name, value in filters.items()}
        # Python's default, which for vectors of few dimensions is more than that of the macros.
        pool = default_pool(0, 256)
        arguments = {
            "hybrid": f"$question, {self.VECTOR}, codes_pool := {pool}",
            "vector": f"{self.VECTOR}, pool := {pool}",
            "lexical": "$question",
        }[mode]
        named = "".join(f", {name} := ${name}" for name in bound)
        statement = f"SELECT node_id, score FROM {mode}_query({arguments}, k := $k{named})"
        return self.con.execute(statement, {"question": question, "k": TOP_K, **bound}).fetchall()


class CommandLine(Surface):
    def ask(self, question, mode, filters):
        words = [f"{mode}-query", question, "--db", str(self.path), "--top-k", str(TOP_K), "--format", "json"]
        words += ["--per-document", "0"]
        for tag in filters.get("tags_any", []):
            words += ["--tag", tag]
        for name, value in filters.get("metadata", {}).items():
            words += ["--metadata", f"{name}={json.dumps(value)}"]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return pairs(json.loads(done.stdout))


class Rest(Surface):
    def __init__(self, path):
        super().__init__(path)
        from starlette.testclient import TestClient

        from sqlrag.adapters.rest import create_app

        self.client = self.stack.enter_context(TestClient(create_app(path), base_url="http://127.0.0.1"))

    def ask(self, question, mode, filters):
        answer = self.client.post(f"/{mode}_query", json={"query_text": question, "top_k": TOP_K, **filters})
        assert answer.status_code == 200, answer.text
        return pairs(answer.json()["results"])


class Mcp(Surface):
    """The SDK's own client; all questions in one session."""

    modes = ("hybrid",)

    def ask_all(self, questions, mode, filters):
        from mcp.client import Client

        from sqlrag.adapters.mcp import create_server

        async def run():
            async with Client(create_server(self.path)) as client:
                found = []
                for question in questions:
                    arguments = {"query_text": question, "top_k": TOP_K, **filters}
                    done = await client.call_tool("hybrid_query", arguments)
                    assert not done.is_error, done
                    found.append(pairs(done.structured_content["results"]))
                return found

        return anyio.run(run)


class LangChain(Surface):
    def ask(self, question, mode, filters):
        from sqlrag.adapters.langchain import SqlragRetriever

        retriever = SqlragRetriever(db_path=self.path, mode=mode, k=TOP_K, search_kwargs=filters)
        return [(document.id, document.metadata["score"]) for document in retriever.invoke(question)]


class LlamaIndexRetriever(Surface):
    modes = ("hybrid",)

    def ask(self, question, mode, filters):
        from sqlrag.adapters.llama_index import SqlragRetriever

        nodes = SqlragRetriever(self.path, top_k=TOP_K, **filters).retrieve(question)
        return [(node.node_id, node.score) for node in nodes]


class LlamaIndexVectorStore(Surface):
    """llama-index embeds the question and hands its vector over, and conditions of metadata as its own filters."""

    # That a field exists is that it is not None.
    OPERATORS = {
        "$in": "in",
        "$exists": "!=",
        "$gt": ">",
        "$gte": ">=",
        "$lt": "<",
        "$lte": "<=",
        "$contains": "contains",
    }

    def __init__(self, path):
        super().__init__(path)
        from sqlrag.adapters.llama_index import SqlragVectorStore

        self.store = self.stack.enter_context(sqlrag.Store(path))
        self.vectors = SqlragVectorStore(client=self.store)

    def ask(self, question, mode, filters):
        from llama_index.core.vector_stores import VectorStoreQuery
        from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode

        modes = {"hybrid": Mode.HYBRID, "vector": Mode.DEFAULT, "lexical": Mode.TEXT_SEARCH}
        query = VectorStoreQuery(
            query_embedding=self.store.query_vector(question).tolist(),
            query_str=question,
            similarity_top_k=TOP_K,
            mode=modes[mode],
            filters=self.metadata_filters(filters.get("metadata", {})),
        )
        others = {name: value for name, value in filters.items() if name != "metadata"}
        others["metadata"] = {key: signs for key, signs in filters.get("metadata", {}).items() if "$eq" in signs}
        found = self.vectors.query(query, **others)
        assert [node.node_id for node in found.nodes] == found.ids
        return list(zip(found.ids, found.similarities, strict=True))

    def metadata_filters(self, metadata):
        from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

        # llama-index has no filters of truth values.
        wanted = [(key, sign, one) for key, signs in metadata.items() for sign, one in signs.items() if sign != "$eq"]
        parts = [
            MetadataFilter(key=key, operator=self.OPERATORS[sign], value=None if sign == "$exists" else value)
            for key, sign, value in wanted
        ]
        return MetadataFilters(filters=parts) if parts else None


SURFACES = {
    surface.__name__: surface
    for surface in (
        OpenStore, InMemory, Coroutines, Blocks, SqlMacro, CommandLine, Rest, Mcp, LangChain,
        LlamaIndexRetriever, LlamaIndexVectorStore,
    )
}  # fmt: skip


def answers(surface, way, questions, ways=WAYS):
    """Return what a surface answers to each question."""
    mode, filters = ways[way]
    if hasattr(surface, "ask_all"):
        return surface.ask_all(questions, mode, filters)
    return [surface.ask(question, mode, filters) for question in questions]


def differences(questions, expected, found):
    """Return a line for each question whose answers are not the same."""
    lines = []
    for question, wanted, given in zip(questions, expected, found, strict=True):
        if [node_id for node_id, _ in given] != [node_id for node_id, _ in wanted]:
            lines.append(f"{question!r}: ids {[i for i, _ in given]}, not {[i for i, _ in wanted]}")
        elif any(abs(a - b) > TOLERANCE for (_, a), (_, b) in zip(given, wanted, strict=True)):
            lines.append(f"{question!r}: scores {[s for _, s in given]}, not {[s for _, s in wanted]}")
    return lines


@pytest.mark.parametrize("count", [FEW, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SURFACES)
def test_the_same_ids_order_and_scores(kb, expected, name, count):
    assert len(QUESTIONS) == 20
    assert sum(len(rows) for rows in expected("hybrid", QUESTIONS[:count])) == count * TOP_K
    surface = SURFACES[name](kb)
    with surface.stack:
        for way, (mode, _) in WAYS.items():
            if mode in surface.modes:
                questions = questions_of(way)[:count]
                wanted = expected(way, questions)
                assert differences(questions, wanted, answers(surface, way, questions)) == [], way


@pytest.mark.parametrize(
    ("count", "rounded"),
    [(30, False), (15, True), *(pytest.param(200, rounded, marks=pytest.mark.slow) for rounded in (False, True))],
)
def test_memory_answers_random_questions_with_random_options_as_sql_does(kb, count, rounded):
    with sqlrag.Store(kb, resident=False) as by_sql, in_memory(kb, rounded=rounded) as by_memory:
        asked = list(random_questions(by_sql, count, seed=1 + rounded))
        assert [found for question in asked if (found := same(by_sql, by_memory, *question))] == []


# Of rows of a table: filters on columns with types, and the same in SQL over the view of the rows.
OF_ROWS = {
    "numbers": ("hybrid", {"price": {"$gte": 10, "$lt": 30.5}}, "price >= 10 AND price < 30.5"),
    "floats": ("vector", {"x": {"$lt": 7.5}}, "x < 7.5"),
    "dates and truth values": (
        "hybrid",
        {"day": {"$gte": "2024-01-05"}, "open": {"$eq": True}},
        "day >= DATE '2024-01-05' AND open",
    ),
    "times": (
        "lexical",
        {"updated_at": {"$lt": "2024-01-01T20:00:00"}},
        "updated_at < TIMESTAMP '2024-01-01 20:00:00'",
    ),
    "a date stands for its midnight": ("lexical", {"updated_at": {"$lte": "2024-01-02"}}, "updated_at <= '2024-01-02'"),
    "the time of a date": ("hybrid", {"day": {"$in": ["2024-01-05T00:00:00"]}}, "day IN (TIMESTAMP '2024-01-05')"),
    "times with their zone": (
        "vector",
        {"seen_at": {"$gt": "2024-01-02 00:00:00"}},
        "seen_at > TIMESTAMPTZ '2024-01-02 00:00:00+00'",
    ),
    "lists": ("hybrid", {"marks": {"$contains": "b"}}, "list_contains(marks, 'b')"),
    "texts": ("lexical", {"channel": {"$in": ["shop"]}}, "channel = 'shop'"),
    "what is there": ("hybrid", {"channel": {"$exists": True}}, "channel IS NOT NULL"),
}

ROW_QUESTIONS = ["Which pump is late?", "loud pump 12", "Order 7"]


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "kb.duckdb"
    source = """SELECT i AS id, 'The pump number ' || i || ' is ' || ['loud', 'cold', 'late'][i % 3 + 1] AS body,
        'Order ' || i AS subject, CAST(i * 1.25 AS DECIMAL(10, 2)) AS price, i % 2 = 0 AS open,
        DATE '2024-01-01' + i::INTEGER AS day, TIMESTAMP '2024-01-01 08:00:00' + INTERVAL (i) HOUR AS updated_at,
        TIMESTAMPTZ '2024-01-01 08:00:00.250+00' + INTERVAL (i) HOUR AS seen_at,
        ['a', 'b', 'c'][: i % 4] AS marks, if(i % 4 = 0, NULL, ['shop', 'phone'][i % 2 + 1]) AS channel,
        if(i = 3, 'nan', i::VARCHAR)::DOUBLE AS x FROM range(40) AS t(i)"""
    model = sqlrag.load_embedder(MODEL, provider="hashing")
    options = {"key": "id", "text": "body", "title": "subject", "collection": "tickets"}
    sqlrag.index_rows(source, path, embedder=model, progress="off", **options)
    with sqlrag.Store(path, read_only=False) as store:
        for question in ROW_QUESTIONS:
            store.embed_query(question)
    with sqlrag.Store(path):
        yield path


WAYS_OF_ROWS = {way: (mode, {"metadata": condition}) for way, (mode, condition, _) in OF_ROWS.items()}


@pytest.fixture(scope="module")
def expected_of_rows(of_rows):
    """Return what Python answers to each question in each way."""
    return {way: [python(of_rows, one, *asked) for one in ROW_QUESTIONS] for way, asked in WAYS_OF_ROWS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SURFACES)
def test_the_same_rows_by_their_columns(of_rows, expected_of_rows, name):
    surface = SURFACES[name](of_rows)
    with surface.stack:
        for way, (mode, _) in WAYS_OF_ROWS.items():
            if mode in surface.modes:
                wanted, given = expected_of_rows[way], answers(surface, way, ROW_QUESTIONS, WAYS_OF_ROWS)
                assert all(wanted)
                assert differences(ROW_QUESTIONS, wanted, given) == [], way


@pytest.mark.parametrize("way", OF_ROWS)
def test_a_filter_chooses_what_sql_chooses(of_rows, way):
    _, condition, where = OF_ROWS[way]
    results = sqlrag.vector_query("pump", of_rows, top_k=50, metadata=condition)
    with duckdb.connect(str(of_rows), read_only=True) as con:
        # NaN is the greatest number to SQL, and none to a filter.
        keys = con.execute(f"SELECT row_key FROM rows_of_tickets WHERE {where} AND NOT isnan(x)").fetchall()
        joined = "SELECT h.node_id, r.row_key FROM lexical_query('pump', k := 50, metadata := $1) AS h "
        rows = con.execute(f"{joined} JOIN rows_of_tickets AS r USING (doc_id)", [json.dumps(condition)]).fetchall()
    found = {row["row_key"] for row in results}
    assert found - {3} == {key for (key,) in keys}
    assert {key for _, key in rows} == found
    assert dict(rows) == {row["node_id"]: row["row_key"] for row in results}
    assert 0 < len(found) < 40


# Where each surface is changed by hand: a function that returns results, or that writes them.
SEAMS = {
    "OpenStore": ("sqlrag.search.queries", "Queries.hybrid_query"),
    "InMemory": ("sqlrag.search.queries", "Queries.hybrid_query"),
    "Coroutines": ("sqlrag", "ahybrid_query"),
    "Blocks": ("sqlrag", "package"),
    "CommandLine": ("sqlrag.cli.search", "write_rows"),
    "Rest": ("sqlrag", "hybrid_query"),
    "Mcp": ("sqlrag", "hybrid_query"),
    "LangChain": ("sqlrag.adapters.langchain", "_documents"),
    "LlamaIndexRetriever": ("sqlrag.adapters.llama_index.retriever", "hybrid_query"),
    "LlamaIndexVectorStore": ("sqlrag.adapters.llama_index.vector_store", "search"),
}


def swapped(rows):
    rows[:2] = rows[1::-1]


def moved(rows):
    """Change the last score a little, as a sum in another order or a rounding would."""
    last = rows[-1]
    if isinstance(last, dict):
        last["score"] += 2e-9
    elif isinstance(last, tuple):
        rows[-1] = (last[0], last[1] + 2e-9)
    else:
        last.metadata["score"] += 2e-9


@pytest.mark.parametrize("change", [swapped, moved])
@pytest.mark.parametrize("name", SEAMS)
def test_a_surface_that_was_changed_is_noticed(kb, expected, monkeypatch, name, change):
    module, attribute = SEAMS[name]
    owner = importlib.import_module(module)
    *classes, function = attribute.split(".")
    for one in classes:
        owner = getattr(owner, one)
    original = getattr(owner, function)

    def changed(found):
        change(found[0] if isinstance(found, tuple) else found)
        return found

    async def run_async(*args, **kwargs):
        return changed(await original(*args, **kwargs))

    def run(*args, **kwargs):
        if function == "write_rows":
            change(args[0])
            return original(*args, **kwargs)
        return changed(original(*args, **kwargs))

    replaced = run_async if inspect.iscoroutinefunction(original) else run
    monkeypatch.setattr(owner, function, functools.wraps(original)(replaced))
    surface = SURFACES[name](kb)
    with surface.stack:
        found = answers(surface, "hybrid", QUESTIONS[:2])
    assert len(differences(QUESTIONS[:2], expected("hybrid", QUESTIONS[:2]), found)) == 2


@pytest.mark.parametrize(("old", "new"), [("0.5 * w.gap", "0.501 * w.gap"), ("BY f.score DESC", "BY f.score")])
def test_a_macro_that_was_changed_is_noticed(kb, expected, tmp_path, old, new):
    path = tmp_path / "changed.duckdb"
    path.write_bytes(kb.read_bytes())
    text = for_dimensions(read_sql("macros/hybrid_query"), 256)
    assert old in text
    with duckdb.connect(str(path)) as con:
        con.execute(text.replace(old, new))
    surface = SqlMacro(path)
    with surface.stack:
        found = answers(surface, "hybrid", QUESTIONS[:2])
    assert len(differences(QUESTIONS[:2], expected("hybrid", QUESTIONS[:2]), found)) == 2
