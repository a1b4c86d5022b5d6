"""What the authors of a model ask to be put before a query and before a document, from the models' own cards."""

from __future__ import annotations

_SEARCH = "Represent this sentence for searching relevant passages: "

# Name in lower case without organisation -> (before a query, before a document). A model that is not here has none.
_PREFIXES: dict[str, tuple[str, str]] = {
    # https://huggingface.co/BAAI/bge-small-en-v1.5 and its sisters: an instruction for queries only
    "bge-small-en": (_SEARCH, ""),
    "bge-base-en": (_SEARCH, ""),
    "bge-large-en": (_SEARCH, ""),
    "bge-small-en-v1.5": (_SEARCH, ""),
    "bge-base-en-v1.5": (_SEARCH, ""),
    "bge-large-en-v1.5": (_SEARCH, ""),
    "bge-small-zh-v1.5": ("为这个句子生成表示以用于检索相关文章：", ""),
    # https://huggingface.co/mixedbread-ai/mxbai-embed-large-v1
    "mxbai-embed-large-v1": (_SEARCH, ""),
    # https://huggingface.co/Snowflake/snowflake-arctic-embed-m and its sisters
    "snowflake-arctic-embed-xs": (_SEARCH, ""),
    "snowflake-arctic-embed-s": (_SEARCH, ""),
    "snowflake-arctic-embed-m": (_SEARCH, ""),
    "snowflake-arctic-embed-m-long": (_SEARCH, ""),
    "snowflake-arctic-embed-l": (_SEARCH, ""),
    # https://huggingface.co/intfloat/e5-base-v2 and its sisters: both sides
    "e5-small": ("query: ", "passage: "),
    "e5-base": ("query: ", "passage: "),
    "e5-large": ("query: ", "passage: "),
    "e5-small-v2": ("query: ", "passage: "),
    "e5-base-v2": ("query: ", "passage: "),
    "e5-large-v2": ("query: ", "passage: "),
    "multilingual-e5-small": ("query: ", "passage: "),
    "multilingual-e5-base": ("query: ", "passage: "),
    "multilingual-e5-large": ("query: ", "passage: "),
    # https://huggingface.co/nomic-ai/nomic-embed-text-v1.5
    "nomic-embed-text-v1": ("search_query: ", "search_document: "),
    "nomic-embed-text-v1.5": ("search_query: ", "search_document: "),
    "nomic-embed-text-v1.5-q": ("search_query: ", "search_document: "),
}


def prefixes_of(model_name: str) -> tuple[str, str]:
    """Return what is put before a query and before a document for this model; empty where its card asks for nothing.

    Examples
    --------
    >>> prefixes_of("intfloat/e5-small-v2")
    ('query: ', 'passage: ')
    """
    return _PREFIXES.get(model_name.rstrip("/").rsplit("/", 1)[-1].lower(), ("", ""))
