"""One table of search options: every surface has its names, defaults, types and limits."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Document, InputError, PostgresStore, RetrievePlan, Store, Stores
from sqlrag.adapters import langchain, llama_index
from sqlrag.adapters.mcp import create_server
from sqlrag.adapters.rest import create_app
from sqlrag.cli import app
from sqlrag.cli import search as search_module
from sqlrag.cli.options import WITHOUT_FLAG
from sqlrag.ranking import plan
from sqlrag.ranking.plan import ALIASES, OPTIONS, SearchOptions
from tests.support.helpers import ROOT, build

SEARCHES = ("hybrid_query", "vector_query", "lexical_query", "explain")
# What a search does by itself where it is not what the table says; the function hybrid_query has use_rrf instead.
OTHERWISE = {
    ("lexical_query", "syntax"): True,
    ("explain", "syntax"): None,
    ("function hybrid_query", "fusion"): None,
}
TAKEN = {
    "hybrid_query": plan.StoreHybridOptions,
    "vector_query": plan.StoreVectorOptions,
    "lexical_query": plan.StoreLexicalOptions,
    "explain": plan.StoreExplainOptions,
}
OF_METHODS = {"codes_pool"}
NAMES = {search: set(taken.__optional_keys__) for search, taken in TAKEN.items()}
MOST = dict.fromkeys(
    ("top_k", "vector_top_k", "lexical_top_k", "per_document", "feedback", "expansion"), 1000
)  # of a server
LARGEST = 2**53 - 1


def option(name):
    return OPTIONS[ALIASES.get(name, name)]


def default_of(search, name, where=""):
    return OTHERWISE.get((f"{where} {search}".strip(), name), OTHERWISE.get((search, name), option(name).default))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), zoo_md="# Zoo\n\nzebra and lion", farm_md="# Farm\n\ncow and horse")


@pytest.fixture(scope="module")
def schemas(file):
    return create_app(file).openapi()["components"]["schemas"]


def test_every_option_is_of_a_search_and_every_option_of_a_search_is_in_the_table():
    taken = {ALIASES.get(name, name) for names in NAMES.values() for name in names}
    assert taken == set(OPTIONS)
    assert all(one.sentence.endswith(".") for one in OPTIONS.values())
    for name, one in OPTIONS.items():
        assert getattr(SearchOptions(), name) == one.default


class TestPython:
    @pytest.mark.parametrize("search", SEARCHES)
    def test_the_typed_dicts_have_the_types_of_the_table(self, search):
        hints = get_type_hints(TAKEN[search], {**vars(plan)})
        for name, hint in hints.items():
            wanted = option(name).kind | None if default_of(search, name) is None else option(name).kind
            assert hint == wanted, name

    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("cls", [Store, Stores, PostgresStore])
    def test_methods(self, cls, search):
        parameters = inspect.signature(getattr(cls, search)).parameters
        assert {name for name in parameters if ALIASES.get(name, name) in OPTIONS} == NAMES[search]
        for name in NAMES[search]:
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[name].default == default_of(search, name)

    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("twin", ["", "a"])
    def test_functions(self, twin, search):
        if twin + search == "aexplain":
            pytest.skip("it has no coroutine")
        parameters = inspect.signature(getattr(sqlrag, twin + search)).parameters
        assert {name for name in parameters if ALIASES.get(name, name) in OPTIONS} == NAMES[search] - OF_METHODS
        for name in NAMES[search] - OF_METHODS:
            assert parameters[name].default == default_of(search, name, "function"), name

    def test_the_fields_of_a_plan_have_the_defaults_of_the_table(self):
        own = {"k", "candidate_pool", "fusion"}  # the blocks keep reciprocal rank fusion
        for name, one in RetrievePlan.__dataclass_fields__.items():
            if name not in own:
                default = getattr(RetrievePlan(), name)
                assert (default or None) == (OPTIONS[name].default or None), one

    @pytest.mark.parametrize("search", SEARCHES)
    def test_another_name_is_a_type_error_as_for_any_function(self, file, search):
        extra = {"node_id": "zoo.md#0"} if search == "explain" else {}
        with pytest.raises(TypeError, match=rf"{search}\(\) got an unexpected keyword argument 'top_kk'"):
            getattr(sqlrag, search)("zebra", db_path=file, top_kk=3, **extra)
        with Store(file) as store, pytest.raises(TypeError, match="unexpected keyword argument 'top_kk'"):
            getattr(store, search)("zebra", top_kk=3, **extra)

    def test_a_function_takes_no_option_of_another_search(self, file):
        for name, meant in {"filter": "metadata", "filters": "metadata", "where": "metadata", "limit": "top_k"}.items():
            with pytest.raises(TypeError, match=rf"keyword argument '{name}'\. Did you mean '{meant}'\?"):
                sqlrag.vector_query("zebra", file, **{name: 1})
        with pytest.raises(TypeError, match=r"vector_query\(\) got an unexpected keyword argument 'fusion'"):
            sqlrag.vector_query("zebra", file, fusion="rrf")
        with pytest.raises(TypeError, match="codes_pool"):
            sqlrag.vector_query("zebra", file, codes_pool=5)
        with pytest.raises(TypeError, match=r"cluster\(\) got .* 'size'; it takes rows, clusters, by, period$"):
            sqlrag.cluster(file, size="zoo")
        with pytest.raises(TypeError, match=r"'collection'; for a part of a file pass rows=embed_rows\(db_path, coll"):
            sqlrag.cluster(file, collection="zoo")


class TestAliases:
    """``fts_top_k`` and ``lexical_top_k`` work alike; with different values they are an error."""

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["fts_top_k", "lexical_top_k"])
    def test_both_names_work_everywhere(self, file, name):
        wanted = sqlrag.hybrid_query("zebra cow", file, lexical_top_k=1, top_k=1)
        assert sqlrag.hybrid_query("zebra cow", file, top_k=1, **{name: 1}) == wanted
        with Store(file) as store, Stores([file]) as stores:
            assert store.hybrid_query("zebra cow", top_k=1, **{name: 1}) == wanted
            assert sqlrag.hybrid_query("zebra cow", store, top_k=1, **{name: 1}) == wanted
            assert stores.hybrid_query("zebra cow", top_k=1, **{name: 1}) == wanted
            for asked in (sqlrag.explain("zebra cow", "zoo.md#0", store, top_k=1, **{name: 1}),
                          store.explain("zebra cow", "zoo.md#0", top_k=1, **{name: 1})):  # fmt: skip
                assert asked == store.explain("zebra cow", "zoo.md#0", top_k=1, lexical_top_k=1)
        ids = [row["node_id"] for row in wanted]
        found = langchain.SqlragRetriever(db_path=file, k=1, search_kwargs={name: 1}).invoke("zebra cow")
        assert [one.id for one in found] == ids
        nodes = llama_index.SqlragRetriever(file, top_k=1, **{name: 1}).retrieve("zebra cow")
        assert [one.node.node_id for one in nodes] == ids
        run = CliRunner().invoke(
            app, ["hybrid-query", "zebra cow", "--db", str(file), "-k", "1", f"--{name.replace('_', '-')}", "1"]
        )
        assert ids[0] in run.output

    @pytest.mark.slow
    def test_rest(self, file, schemas):
        properties = schemas["HybridQueryRequest"]["properties"]
        assert {"fts_top_k", "lexical_top_k"} <= set(properties) & set(schemas["ExplainRequest"]["properties"])

    def test_two_values_are_an_error(self, file):
        said = "fts_top_k=3 and lexical_top_k=4 are the same option"
        with pytest.raises(InputError, match=said):
            sqlrag.hybrid_query("zebra", file, fts_top_k=3, lexical_top_k=4)
        with Store(file) as store, pytest.raises(InputError, match=said):
            store.explain("zebra", "zoo.md#0", fts_top_k=3, lexical_top_k=4)
        assert sqlrag.hybrid_query("zebra", file, fts_top_k=3, lexical_top_k=3)
        arguments = ["hybrid-query", "zebra", "--db", str(file), "--fts-top-k", "3", "--lexical-top-k", "4"]
        run = CliRunner().invoke(app, arguments)
        assert run.exit_code == 2
        assert "--fts-top-k 3 and --lexical-top-k 4 are the same option" in run.output

    def test_a_wrong_value_is_named_as_it_was_given(self, file):
        for name in ("fts_top_k", "lexical_top_k"):
            with pytest.raises(InputError, match=f"^{name} must be a whole number from 0"):
                sqlrag.hybrid_query("zebra", file, **{name: -1})


class TestCommandLine:
    # --plain says the opposite of syntax; explain asks no model twice.
    LACKING = {"lexical_query": {"syntax"}, "explain": {"model_name", "strict"}}
    OTHER_DEFAULTS = {"per_document": None}  # 2 in a table, 0 for programs
    SAID_OTHERWISE = {("explain", "syntax"), ("explain", "conjunctive")}

    @pytest.mark.parametrize("search", SEARCHES)
    def test_options(self, search):
        parameters = inspect.signature(getattr(search_module, search)).parameters
        told = " ".join(CliRunner().invoke(app, [search.replace("_", "-"), "--help"]).output.split())
        wanted = NAMES[search] - WITHOUT_FLAG.keys() - self.LACKING.get(search, set())
        assert {name for name in parameters if ALIASES.get(name, name) in OPTIONS} == wanted
        for name in wanted:
            kind, flag = get_args(parameters[name].annotation)
            default = parameters[name].default
            assert getattr(default, "value", default) == self.OTHER_DEFAULTS.get(name, default_of(search, name)), name
            # Of two long names the help has the last; that of an alias is not there at all.
            names = [flag.default, *flag.param_decls]
            shown = [one.partition("/")[0] for one in names if one.startswith("--")][-1]
            assert (f"{shown} " in told) == (name not in ALIASES)
            if name not in ALIASES and (search, name) not in self.SAID_OTHERWISE:
                assert flag.help.startswith(OPTIONS[name].brief)
            wanted_kind = (
                option(name).kind | None if default is None and name in self.OTHER_DEFAULTS else option(name).kind
            )
            assert same_kind(kind, wanted_kind) or (search, name) == ("explain", "syntax")

    def test_what_has_no_flag_has_a_reason(self):
        assert set(WITHOUT_FLAG) <= set(OPTIONS)
        assert all(WITHOUT_FLAG.values())

    @pytest.mark.parametrize("name", [name for name, one in OPTIONS.items() if one.range and name not in WITHOUT_FLAG])
    def test_limits(self, file, name):
        low = option(name).range.ge
        arguments = ["hybrid-query", "zebra", "--db", str(file), f"--{name.replace('_', '-')}", str(low - 1)]
        run = CliRunner().invoke(app, arguments)
        assert run.exit_code == 2
        assert f"--{name.replace('_', '-')} must be a" in run.output
        assert str(low) in run.output


def same_kind(shell, kind):
    """Return whether a type of the command line is that of the table: names are an Enum, what is repeatable a list."""
    inner = [one for one in (get_args(kind) if NoneType in get_args(kind) else (kind,)) if one is not NoneType]
    if get_origin(inner[0]) is Literal:
        return [one.value for one in shell] == list(get_args(inner[0]))
    if inner[0] in (int, float, bool) or inner == [str]:
        return shell == kind
    return get_origin(get_args(shell)[0]) is list


def told(schema):
    """Return the alternatives of a property but null, as they stand in a schema."""
    return [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]


def check_schema(schema, one, most=None):
    """Compare a property of a JSON schema with an option of the table: type, enum and limits."""
    alternatives = get_args(one.kind) if NoneType in get_args(one.kind) else (one.kind,)
    kinds = [kind for kind in alternatives if kind is not NoneType]
    parts = told(schema)
    types = {int: "integer", float: "number", bool: "boolean", str: "string"}
    for kind in kinds:
        origin = get_origin(kind)
        name = "array" if origin in (tuple, Sequence) else "object" if origin is Mapping else types.get(kind, "string")
        (part,) = [part for part in parts if part["type"] == name][:1]
        if origin is Literal:
            assert tuple(part["enum"]) == get_args(kind)
        if one.range:
            limited = part["items"] if origin is tuple else part
            low, high = one.range.ge, one.range.le
            high = min(high or most, most) if most else LARGEST if kind is int and high is None else high
            assert (limited.get("minimum"), limited.get("maximum")) == (low, high)


class TestRest:
    @pytest.mark.parametrize("search", SEARCHES)
    def test_the_request_has_every_option_with_its_limits(self, schemas, search):
        model = schemas["".join(part.title() for part in search.split("_")) + "Request"]["properties"]
        assert {name for name in model if ALIASES.get(name, name) in OPTIONS} == NAMES[search] - OF_METHODS
        for name in NAMES[search] - OF_METHODS:
            one = option(name)
            check_schema(model[name], one, MOST.get(one.name))
            default = default_of(search, name, "function")
            assert model[name].get("default") == (list(default) if isinstance(default, tuple) else default)
            if name not in ALIASES:
                assert model[name]["description"].startswith(re.sub(r":\w+:`([^`]*)`", r"`\1`", one.sentence)[:40])

    def test_no_option_of_a_range_is_without_limits(self, schemas):
        """Such as ``k1``, ``b`` and ``feedback_weight``, of which the documentation alone told once."""
        model = schemas["HybridQueryRequest"]["properties"]
        assert (model["k1"]["minimum"], model["k1"]["maximum"]) == (0, 1000)
        assert (model["b"]["minimum"], model["b"]["maximum"]) == (0, 1)
        assert (model["feedback_weight"]["minimum"], model["feedback_weight"]["maximum"]) == (0, 1)

    def test_a_plan_has_the_limits_too(self, schemas):
        model = schemas["RetrievePlan"]["properties"]
        shared = {name for name in model if name in OPTIONS}
        assert shared == set(model) - {"k", "candidate_pool"}
        for name in shared - {"collection", "tags_any", "tags_all", "metadata"}:
            check_schema(model[name], OPTIONS[name])


def test_mcp_has_the_types_limits_and_defaults_of_the_table(file):
    tools = {tool.name: tool for tool in asyncio.run(create_server(file).list_tools())}
    for tool in ("search", "ask"):
        properties = tools[tool].input_schema["properties"]
        names = properties.keys() & OPTIONS.keys()
        assert {"top_k", "collection", "tags_any", "tags_all", "metadata", "min_similarity"} <= names
        for name in names:
            check_schema(properties[name], OPTIONS[name], 50 if name == "top_k" else None)
            if tool == "search" and name != "top_k":
                assert properties[name].get("default") == default_of("hybrid_query", name, "function")


@pytest.mark.parametrize("search", ["hybrid_query", "vector_query", "lexical_query"])
def test_langchain_takes_every_option(file, search):
    mode = search.removesuffix("_query")
    for name in NAMES[search] - OF_METHODS - {"top_k"}:
        given = {name: default_of(search, name, "function")}
        assert langchain.SqlragRetriever(db_path=file, mode=mode, search_kwargs=given)
    with pytest.raises(ValueError, match="takes no top_kk"):
        langchain.SqlragRetriever(db_path=file, mode=mode, search_kwargs={"top_kk": 3})
    for name in sorted(NAMES[search] & {"alpha", "k1", "min_similarity"}):
        with pytest.raises(InputError, match=f"{name} must be"):
            langchain.SqlragRetriever(db_path=file, mode=mode, search_kwargs={name: -2}).invoke("zebra")


def test_llama_index_takes_every_option(file):
    for name in NAMES["hybrid_query"] - OF_METHODS:
        assert llama_index.SqlragRetriever(file, **{name: default_of("hybrid_query", name, "function")})
    with pytest.raises(InputError, match="takes no top_kk"):
        llama_index.SqlragRetriever(file, top_kk=3)
    with pytest.raises(InputError, match="k1 must be"):
        llama_index.SqlragRetriever(file, k1=-1).retrieve("zebra")


class TestDocstrings:
    """What a docstring says is text alone: no type, default or limit is read out of it."""

    FUNCTIONS = [getattr(sqlrag, name) for name in sqlrag.__all__ if inspect.isroutine(getattr(sqlrag, name))]

    def described(self, file):
        tools = asyncio.run(create_server(file).list_tools())
        return {"rest": create_app(file).openapi(), "mcp": [tool.input_schema for tool in tools]}

    @pytest.mark.slow
    def test_other_words_change_descriptions_alone(self, file, monkeypatch):
        before = self.described(file)
        for function in self.FUNCTIONS:
            doc = inspect.getdoc(function) or ""
            body = re.sub(r"^    (?=\S)", "    From 5..9, 100 or more, above 7, int or None: ", doc, flags=re.MULTILINE)
            monkeypatch.setattr(function, "__doc__", "Other words.\n" + body.replace("0..1", "3..4"))
        after = self.described(file)
        assert after != before
        assert without_text(after) == without_text(before)

    @pytest.mark.slow
    def test_without_docstrings_the_schema_of_rest_is_the_same(self, file, monkeypatch):
        before = create_app(file).openapi()
        for function in self.FUNCTIONS:
            monkeypatch.setattr(function, "__doc__", None)
        assert without_text(create_app(file).openapi()) == without_text(before)


def without_text(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: without_text(value)
            for key, value in schema.items()
            if key not in ("description", "summary") or isinstance(value, dict)
        }
    return [without_text(value) for value in schema] if isinstance(schema, list) else schema


USERS_FILE = """\
from sqlrag import Store, Stores, ahybrid_query, explain, hybrid_query, lexical_query, vector_query


async def right(store: Store, stores: Stores) -> None:
    store.hybrid_query("q", top_k=3, fusion="convex", alpha=0.5, fts_top_k=9, metadata={"year": 2024})
    stores.vector_query(query_vector=[0.0, 1.0], exact=True, codes_pool=9)
    store.lexical_query("q", fields=["text"], conjunctive=True, syntax=False)
    print(store.explain("q", "a.md#0", mode="lexical", syntax=None))
    print(hybrid_query("q", "kb.duckdb", lexical_top_k=9, rrf_weights=(1, 2))[0]["score"])
    vector_query("q", "kb.duckdb", None, 3, min_similarity=0.5)
    lexical_query("q", "kb.duckdb", 3, k1=1.0, heading_weight=None)
    explain("q", "a.md#0", "kb.duckdb", feedback=2)
    await ahybrid_query("q", store, expansion=5)


def wrong(store: Store, stores: Stores) -> None:
    store.hybrid_query("q", top_kk=3)
    stores.vector_query("q", fusion="rrf")
    store.lexical_query("q", min_similarity=0.5)
    store.explain("q", "a.md#0", include_source_docs=True)
    hybrid_query("q", "kb.duckdb", alfa=0.5)
    vector_query("q", "kb.duckdb", codes_pool=5)
    lexical_query("q", "kb.duckdb", exact=True)
    explain("q", "a.md#0", "kb.duckdb", k=5)
    store.hybrid_query("q", top_k="3")
    store.hybrid_query("q", fusion="borda")
"""


@pytest.mark.slow
def test_mypy_refuses_a_wrong_name_in_a_users_file(tmp_path):
    path = tmp_path / "users_file.py"
    path.write_text(USERS_FILE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    lines = USERS_FILE.splitlines()
    first = lines.index("def wrong(store: Store, stores: Stores) -> None:") + 2
    found = {int(line) for line in re.findall(r"users_file\.py:(\d+): error", done.stdout)}
    assert found == set(range(first, len(lines) + 1)), done.stdout


def test_an_iterator_is_read_once_and_used_wherever_the_plan_is(tmp_path):
    """Of a search without a vector the statement is made of a second plan, with the options of the first."""
    with Store.create(tmp_path / "kb.duckdb", 4) as store:
        store.upsert([Document("a.md", "pool")], [Chunk("a.md", 0, "pool", i_end=4)], [[1, 0, 0, 0]])
        names = {"fields": ["text"], "collection": ["default"]}
        for search in (store.lexical_query, store.hybrid_query):
            wanted = search("pool", **names)
            found = search("pool", **{name: iter(values) for name, values in names.items()})
            assert [(row["node_id"], row["score"]) for row in found] == [
                (row["node_id"], row["score"]) for row in wanted
            ]
            assert len(found) == 1
            assert found.sql == wanted.sql


def test_two_names_with_two_values_are_shown_as_plain_numbers():
    with pytest.raises(InputError, match=r"fts_top_k=4 and lexical_top_k=3 are the same option"):
        plan.canonical({"fts_top_k": 4, "lexical_top_k": np.int64(3)})
