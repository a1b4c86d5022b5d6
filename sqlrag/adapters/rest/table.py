"""Which public functions have a route, which arguments the server sets, and why other functions have no route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Arguments that a client cannot set, in any function, and why.
KEPT = {
    "db_path": "the file is the one that is served",
    "store": "the file is the one that is served",
    "input_dir": "the folder is the one that the server was started with",
    "folder": "it is a folder of the server's machine",
    "path": "a route writes its own temporary file",
    "json_path": "a route writes its own temporary file",
    "overwrite": "a route writes its own temporary file",
    "chat_model": "the chat model is the one that the server was started with",
    "base_url": "a client must not make the server call other servers",
    "api_key": "the key is the server's",
    "timeout": "the server has its own limit",
    "max_retries": "the server has its own limit",
    "wait_seconds": "the server has its own limit",
    "max_bytes": "the server has its own limit",
    "template": "a template is a program, and may run forever",
    "count_tokens": "it is a Python function",
    "token_offsets": "it is a Python function",
    "pdf_extractor": "it is a Python function",
    "embedder": "it is a Python object; the model is that of the file",
    "embed_model_name": "the model is that of the file",
    "verbose": "it writes to a terminal",
    "progress": "it writes to a terminal",
}

# Public functions without a route, and why, each in a sentence.
WITHOUT_ROUTE = {
    **dict.fromkeys(
        ("prepare_embeddings", "aprepare_embeddings"),
        "It builds a new file from a folder on the server's machine; upload documents instead (POST /documents).",
    ),
    **dict.fromkeys(
        ("compact", "repair", "upgrade", "reembed", "areembed"),
        "It rewrites the whole file, which no other process may have open: stop the server and run that command.",
    ),
    **dict.fromkeys(
        ("convert", "file_facts", "verify_file"), "It takes paths of files on the server's machine: run the command."
    ),
    **dict.fromkeys(
        ("import_faiss_json", "import_parquet", "import_ragfile", "import_ragmd"),
        "It writes a new file from one on the server's machine: run the command.",
    ),
    "backup": "It writes a copy to the server's machine: run the command of that name.",
    "merge": "It writes a new file from others on the server's machine: run the command.",
    **dict.fromkeys(
        ("export_faiss_json", "export_parquet"),
        "It writes several files, or a folder, to the server's machine: run the command.",
    ),
    **dict.fromkeys(("push", "pull"), "It moves a whole store to another place: run the command of that name."),
    **dict.fromkeys(
        ("load_embedder", "load_reranker", "open_store", "rag_service"), "It returns a live Python object."
    ),
    **dict.fromkeys(
        ("index_rows", "update_rows"),
        "It reads files and databases of the server's machine: stop the server and run that command.",
    ),
    **dict.fromkeys(
        ("classify", "cluster", "distinctive_terms", "embed_rows", "near_duplicates", "semantic_join", "trend"),
        "It analyses whole tables or files in this process: call it in Python.",
    ),
    "corpus_map": "It reads every vector, which takes minutes in a large file: run sqlrag map.",
    **dict.fromkeys(
        ("export_map_html", "export_map_parquet"), "It writes to the server's machine: run sqlrag map without a server."
    ),
    **dict.fromkeys(
        ("plot_lengths", "plot_map", "plot_ranks"), "It returns a live Python object, a figure of matplotlib."
    ),
    "evaluate": "It runs many searches for one answer: run the command of that name.",
    "recommend": "It runs many searches for one answer: run sqlrag evaluate --recommend.",
    **dict.fromkeys(
        ("attach_sql", "connect", "register"), "It is for a DuckDB session on the machine that has the file."
    ),
    "models": "It lists the models in the folders of the server's machine.",
    "print_results": "It writes to a terminal.",
    **{
        f"a{name}": f"The route of {name} does the same; on a server requests run in parallel."
        for name in (
            *("answer", "get_embedding_metadata", "get_source_documents", "hybrid_query", "lexical_query", "rerank"),
            *("retrieve", "update_embeddings", "vector_query"),
        )
    },
}


@dataclass(frozen=True)
class Call:
    """A public function with a route ``POST /name``.

    ``answer`` is the name of the result in the response, "" if the result is an object itself. ``example`` is a request
    that works on a server of the handbook. ``changes``: it writes to the file; ``by_path``: it takes the path of the
    file, not an open store.
    """

    name: str
    example: dict[str, Any] = field(default_factory=dict)
    answer: str = ""
    changes: bool = False
    get: bool = False
    by_path: bool = False


_QUESTION = "How do I filter by tag?"

_FOUND = {"doc_id": "guides/filters.md", "chunk_index": 0, "content": "Filters choose chunks before they are ranked."}

_OTHER = {"doc_id": "faq.md", "chunk_index": 1, "content": "No server is needed. A file is enough."}

_ITEM = {"node_id": "guides/filters.md#0", "text": "Filters choose chunks before they are ranked.", "score": 0.5}

CALLS = (
    Call("hybrid_query", {"query_text": _QUESTION, "top_k": 3}, "results"),
    Call("vector_query", {"query_text": _QUESTION, "top_k": 3}, "results"),
    Call("lexical_query", {"query_text": '"filter by tag" collect*', "top_k": 3}, "results"),
    Call("highlight", {"query_text": "filter by tag", "texts": ["A filter keeps the chunks with a tag."]}, "spans"),
    Call("explain", {"query_text": _QUESTION, "node_id": "guides/filters.md#0"}),
    Call("get_source_documents", {"chunk_ids": ["guides/filters.md#0"]}, "documents"),
    Call("get_embedding_metadata", get=True),
    Call("validate_embedding_model", {"model_name": "all-MiniLM-L6-v2", "expected_dimensions": 384}, "valid"),
    Call("retrieve", {"query": _QUESTION, "plan": {"mode": "lexical", "k": 3}}, "candidates"),
    Call("fuse", {"candidate_sets": [[_FOUND, _OTHER], [_OTHER]], "method": "rrf"}, "candidates"),
    Call("reciprocal_rank_fusion", {"rankings": [["a", "b"], ["b", "c"]], "k": 60}, "ranking"),
    Call("package", {"candidates": [_FOUND], "query_text": _QUESTION}, "results"),
    Call(
        "rerank",
        {"query": _QUESTION, "candidates": [_FOUND, _OTHER], "vectors": [[0, 1], [1, 0]], "query_vector": [1, 0]},
        "candidates",
    ),
    Call("drop_near_duplicates", {"candidates": [_FOUND, _FOUND | {"chunk_index": 1}]}, "candidates"),
    Call("compress", {"query": _QUESTION, "candidates": [_FOUND], "policy": {"sentences": 1}}, "results"),
    Call("fit_context", {"results": [_ITEM], "max_tokens": 200}),
    Call("build_prompt", {"question": _QUESTION, "contexts": [_ITEM]}),
    Call(
        "chunk",
        {
            "document": "# Tags\n\nA tag is a word.",
            "policy": {"chunk_size": 100, "chunk_overlap": 0, "chunk_unit": "chars"},
        },
        "chunks",
    ),
    Call("check", answer="problems", get=True, by_path=True),
    Call("delete_documents", {"doc_ids": ["no-such-page.md"]}, changes=True),
    Call("index", {"chunks": [{"doc_id": "note.md", "chunk_index": 0, "content": "Tags are words."}]}, changes=True),
    Call("update_embeddings", {"prune": False}, changes=True, by_path=True),
)
