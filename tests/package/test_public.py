"""The public surface: names, documentation, signatures, what importing costs, and the errors' tree."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from pathlib import Path

import pytest

import sqlrag
from sqlrag import errors
from tests.support.helpers import ROOT, python

HEAVY = (
    "llama_index", "fastembed", "onnxruntime", "torch", "pandas", "polars", "pyarrow", "typer", "tqdm", "pypdf",
    "markdown_it", "yaml", "tokenizers", "numpy", "pypdfium2",
)  # fmt: skip


def module_names():
    return sorted(module.name for module in pkgutil.walk_packages(sqlrag.__path__, "sqlrag."))


class TestNames:
    def test_all_is_sorted_and_is_what_dir_shows(self):
        assert sqlrag.__all__ == sorted(sqlrag.__all__, key=lambda name: (not name.isupper(), name))
        assert len(set(sqlrag.__all__)) == len(sqlrag.__all__)
        assert dir(sqlrag) == sorted([*sqlrag.__all__, "__version__"])

    def test_every_name_is_there_and_says_what_it_is(self):
        for name in sqlrag.__all__:
            value = getattr(sqlrag, name)
            assert value.__doc__, name
            assert len(value.__doc__.split()) > 3, name
            if inspect.isfunction(value) or inspect.isclass(value):
                assert value.__module__.startswith("sqlrag"), name

    def test_lazy_names_are_public_and_no_other_name_is_found(self):
        assert set(sqlrag._LAZY) <= set(sqlrag.__all__)
        with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
            _ = sqlrag.nothing
        with pytest.raises(AttributeError, match=r"no attribute 'lexical_qeury'\. Did you mean 'lexical_query'"):
            _ = sqlrag.lexical_qeury

    def test_names_are_in_the_modules_of_the_published_package(self):
        from sqlrag import prepare, query

        assert prepare.prepare_embeddings is sqlrag.prepare_embeddings
        for name in (
            *("hybrid_query", "get_source_documents", "get_embedding_metadata", "validate_embedding_model"),
            *("reciprocal_rank_fusion", "print_results"),
        ):
            assert getattr(query, name) is getattr(sqlrag, name)

    def test_public_methods_are_documented(self):
        for cls in (sqlrag.Store, sqlrag.Stores, sqlrag.Results, sqlrag.Report, sqlrag.Prepared):
            for name, member in vars(cls).items():
                if not name.startswith("_") and (callable(member) or isinstance(member, (property, classmethod))):
                    assert inspect.getdoc(getattr(cls, name)), f"{cls.__name__}.{name}"

    def test_the_version_is_the_projects(self):
        assert re.fullmatch(r"\d+\.\d+\.\d+", sqlrag.__version__)

    def test_entry_points_resolve(self):
        tomllib = pytest.importorskip("tomllib")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        points = project["entry-points"]["sqlrag.embedders"]
        assert points.keys() == {"onnx", "openvino", "hashing", "huggingface", "ollama", "openai"}
        for target in points.values():
            module, _, attribute = target.partition(":")
            assert callable(getattr(importlib.import_module(module), attribute).embed)


class TestImport:
    def test_importing_loads_nothing_heavy(self):
        code = (
            "import time, sys\nbegan = time.perf_counter()\nimport duckdb\nmiddle = time.perf_counter()\n"
            "before = set(sys.modules)\nimport sqlrag\nend = time.perf_counter()\n"
            "print(middle - began, end - middle)\nprint(*sorted(set(sys.modules) - before))"
        )
        times, modules = python(code).splitlines()
        loaded = {name.partition(".")[0] for name in modules.split()}
        assert not loaded & set(HEAVY)
        duckdb_ms, own_ms = (float(seconds) * 1000 for seconds in times.split())
        print(f"import duckdb {duckdb_ms:.0f} ms, then import sqlrag {own_ms:.0f} ms")

    @pytest.mark.slow
    def test_a_query_by_words_loads_no_model_and_no_reader(self, tmp_path):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.md").write_text("zebra")
        sqlrag.prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embedding_provider="hashing", progress="off"
        )
        code = "import sys, sqlrag\nprint(len(sqlrag.lexical_query('zebra', sys.argv[1])))\nprint(*sys.modules)"
        count, modules = python(code, tmp_path / "kb.duckdb").splitlines()
        assert count == "1"
        loaded = {name.partition(".")[0] for name in modules.split()}
        assert not loaded & (set(HEAVY) - {"numpy", "pyarrow", "pandas"})

    @pytest.mark.slow
    def test_every_module_can_be_imported_alone(self):
        assert len(module_names()) > 25
        for name in module_names():
            if name != "sqlrag.__main__":
                importlib.import_module(name)
        # The first import of a module in a fresh process must not depend on another one's.
        names = [name for name in module_names() if name.count(".") == 2]
        python("import importlib, sys\nfor name in sys.argv[1:]:\n"
               "    for known in [m for m in sys.modules if m.startswith('sqlrag')]: del sys.modules[known]\n"
               "    importlib.import_module(name)", *names)  # fmt: skip


class TestErrors:
    CLASSES = sorted(
        (cls for cls in vars(errors).values() if inspect.isclass(cls) and cls.__module__ == errors.__name__),
        key=lambda cls: cls.__name__,
    )

    def test_the_tree_at_the_top_is_the_tree(self):
        drawn = {}
        parents = []
        for line in errors.__doc__.splitlines():
            match = re.match(r"^    ([│ ]*)(├── |└── )?(\w+Error)\b(?: +\((\w+)\))?", line)
            if match:
                depth = len(match[1]) // 4 + bool(match[2])
                parents[depth:] = [match[3]]
                drawn[match[3]] = ([*parents[:depth]][-1] if depth else "Exception", match[4])
        assert drawn.keys() == {cls.__name__ for cls in self.CLASSES}
        for cls in self.CLASSES:
            parent, builtin = drawn[cls.__name__]
            assert cls.__bases__[0].__name__ == parent, cls
            assert [base.__name__ for base in cls.__bases__[1:]] == ([builtin] if builtin else []), cls

    def test_they_are_public_and_documented(self):
        assert {cls.__name__ for cls in self.CLASSES} <= set(sqlrag.__all__)
        for cls in self.CLASSES:
            assert getattr(sqlrag, cls.__name__) is cls
            assert cls.__doc__
            assert issubclass(cls, sqlrag.SqlragError)

    def test_attributes(self):
        assert "pip install 'sqlrag-duckdb[offline]'" in str(sqlrag.MissingExtraError("This", "offline"))
        error = sqlrag.StoreLockedError(Path("/x/kb.duckdb"), "in use", 7)
        assert (error.path, error.pid, str(error)) == ("/x/kb.duckdb", 7, "in use")
        error = sqlrag.DocumentError("a.md", "broken")
        assert (error.doc_id, error.reason, error.status, str(error)) == ("a.md", "broken", "failed", "a.md: broken")


class TestDropIn:
    # Names and order of the published sqlrooms-rag 0.1.2; what is ours comes after them, by keyword only.
    PUBLISHED = {
        "prepare_embeddings": [
            "input_dir", "output_db", "chunk_size", "embed_model_name", "embed_dim", "embedding_provider", "api_key",
            "verbose", "use_markdown_chunking", "include_headers_in_chunks", "header_weight", "overwrite",
        ],
        "hybrid_query": [
            "query_text", "db_path", "model_name", "top_k", "vector_weight", "use_rrf", "vector_top_k", "fts_top_k",
            "include_source_docs", "verbose",
        ],
        "get_source_documents": ["chunk_ids", "db_path"],
        "get_embedding_metadata": ["db_path"],
        "validate_embedding_model": ["db_path", "model_name", "expected_dimensions"],
        "reciprocal_rank_fusion": ["rankings", "k"],
        "print_results": ["results", "query_text"],
    }  # fmt: skip
    DEFAULTS = {
        "prepare_embeddings": {
            "chunk_size": 512, "embed_model_name": None, "embed_dim": None, "api_key": None, "verbose": True,
            "use_markdown_chunking": True, "include_headers_in_chunks": True, "header_weight": 3, "overwrite": False,
        },
        # The published default of use_rrf is True; None is the adaptive fusion.
        "hybrid_query": {
            "top_k": 5, "vector_weight": 0.5, "use_rrf": None, "vector_top_k": None, "fts_top_k": None,
            "include_source_docs": False, "verbose": False,
        },
        "validate_embedding_model": {"expected_dimensions": None},
        "reciprocal_rank_fusion": {"k": 60},
    }  # fmt: skip

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_parameters(self, name):
        parameters = inspect.signature(getattr(sqlrag, name)).parameters
        positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional == self.PUBLISHED[name]
        assert {p.kind for p in parameters.values()} <= {
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        }
        for parameter, default in self.DEFAULTS.get(name, {}).items():
            assert parameters[parameter].default == default

    @pytest.mark.parametrize("name", ["hybrid_query", "vector_query", "lexical_query"])
    def test_the_functions_and_the_stores_methods_take_the_same_options(self, name):
        function = set(inspect.signature(getattr(sqlrag, name)).parameters)
        method = set(inspect.signature(getattr(sqlrag.Store, name)).parameters) - {"self"}
        only_published = {"db_path", "use_rrf", "verbose"}
        assert function - only_published <= method
        assert method - function <= {"codes_pool"}


def section(function, title):
    """Return a section of a docstring without its title, "" where it has none."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", inspect.getdoc(function), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def names_in(text):
    """Return the names that stand alone or in a row at the left edge of a section."""
    return {name for line in re.findall(r"^\w+(?:, \w+)*$", text, re.MULTILINE) for name in line.split(", ")}


def ends_every_error(handler):
    """Return whether what is raised in a block with this handler ends there, whatever it is."""
    every = handler.type is None or ast.unparse(handler.type) == "Exception"
    return every and not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def raised_by(function, seen=()):
    """Return the errors of ours that the function raises, itself or through functions of its own module."""
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    caught = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.Try) and any(ends_every_error(handler) for handler in block.handlers)
        for statement in block.body
        for node in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if node in caught:
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found.add(ast.unparse(node.exc.func))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = function.__globals__.get(node.func.id)
            if inspect.isfunction(called) and called.__module__ == function.__module__ and called not in seen:
                found |= raised_by(called, (*seen, function))
    return {name for name in found if issubclass(getattr(errors, name, object), errors.SqlragError)}


class TestDocstrings:
    FUNCTIONS = tuple(name for name in sqlrag.__all__ if inspect.isfunction(getattr(sqlrag, name)))
    METHODS = tuple(
        (cls, name)
        for cls in (
            sqlrag.Store,
            sqlrag.Stores,
            sqlrag.Results,
            sqlrag.Settings,
            sqlrag.Candidates,
            sqlrag.Chunk,
            sqlrag.Embedder,
            sqlrag.ChatModel,
            sqlrag.OpenAIChat,
        )
        for name, member in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod))
    )

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_a_function_says_what_it_takes_and_returns_and_raises(self, name):
        function = getattr(sqlrag, name)
        signature = inspect.signature(function)
        assert names_in(section(function, "Parameters")) == set(signature.parameters)
        assert bool(section(function, "Returns")) == (signature.return_annotation != "None")
        # A DocumentError becomes a line of the report.
        assert raised_by(function) - {"DocumentError"} - names_in(section(function, "Raises")) == set()

    @pytest.mark.parametrize(("cls", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
    def test_a_method_says_it_too_or_points_to_the_function_that_does(self, cls, name):
        method = getattr(cls, name)
        doc = inspect.getdoc(method)
        twin = getattr(sqlrag, name) if re.search(rf":func:`(sqlrag\.)?{name}`", doc) else None
        known = names_in(section(method, "Parameters")) | set(re.findall(r"``(\w+)``", doc))
        known |= set(inspect.signature(twin).parameters) if twin else set()
        taken = set(inspect.signature(method).parameters) - {"self"}
        assert taken - known == set()
        raised = raised_by(method) - names_in(section(method, "Raises"))
        assert raised - (names_in(section(twin, "Raises")) if twin else set()) == set()

    def test_what_is_raised_is_found(self):
        """Or the tests above would pass for any docstring."""
        assert raised_by(sqlrag.rerank) == {"InputError", "ModelUnavailableError", "ProviderError"}
        assert raised_by(sqlrag.models) == set()  # what a provider raises is its reason
        assert raised_by(sqlrag.Store.create) == {"InputError", "ModelMismatchError"}
        assert raised_by(sqlrag.aget_source_documents) == set()  # what it calls is of another module


@pytest.mark.every
@pytest.mark.parametrize("name", module_names())
def test_examples_in_docstrings_run(name):
    if name.endswith("__main__"):
        pytest.skip("running it is its import")
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_the_package_is_typed():
    assert (Path(sqlrag.__file__).parent / "py.typed").exists()
    assert "sqlrag" in sys.modules
