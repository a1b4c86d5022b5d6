"""RAGFile v0.1.0, a binary file for retrieval: out of a store and back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from sqlrag.errors import FormatError, StoreError
from sqlrag.formats.contents import Contents
from sqlrag.formats.exchange import Imported, stored_contents, write_store
from sqlrag.formats.files import Exported, existing, new_output
from sqlrag.formats.ragfile_layout import MAGIC, ByteOrder, check_choices
from sqlrag.formats.ragfile_map import RAGFile, Record
from sqlrag.formats.ragfile_reading import known_settings, stored_batches
from sqlrag.formats.ragfile_writing import Layout, write_sections

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.types import AnyEmbedder

__all__ = ["RAGFile", "Record", "export_ragfile", "import_ragfile", "is_ragfile", "read_ragfile", "write_ragfile"]


def is_ragfile(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as a RAGFile does."""
    with existing(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def write_ragfile(
    contents: Contents,
    path: str | os.PathLike[str],
    *,
    precision: int = 32,
    byte_order: ByteOrder = "little",
    padding: int = 8,
    overwrite: bool = False,
) -> Exported:
    """Write contents as a RAGFile; see :func:`export_ragfile`."""
    check_choices(precision, byte_order, padding)
    layout = Layout(precision, byte_order, padding, contents.dimensions)
    with new_output(path, overwrite=overwrite, is_ours=is_ragfile, kind="RAGFile") as file:
        try:
            write_sections(contents, file, layout)
        except duckdb.Error as error:
            raise StoreError(path, f"{path} could not be written: {error}. Is the disk full?") from error
    output = existing(path)
    return Exported(output, contents.documents, contents.chunks, output.stat().st_size, list(contents.notices))


@contextmanager
def read_ragfile(path: str | os.PathLike[str]) -> Iterator[Contents]:
    """Open a RAGFile that sqlrag wrote and yield what it holds of a store; the digests are checked first.

    Raises
    ------
    NotFoundError
        There is no such file.
    FormatError
        It is no RAGFile, damaged, or of another writer.
    """
    with RAGFile(path) as file:
        facts = file.facts
        if facts is None:
            raise FormatError(
                f"{file.path} was not written by sqlrag: it has no section 'sqlrag', hence no documents to import. "
                "RAGFile(path, dimensions=...).iter_records() reads its records."
            )
        batches = stored_batches(file, facts)
        yield Contents(known_settings(facts), facts.documents, facts.chunks, batches, facts.updated_at)


def export_ragfile(
    db_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    precision: int = 32,
    byte_order: ByteOrder = "little",
    padding: int = 8,
    overwrite: bool = False,
) -> Exported:
    """Write a store, or the documents of it that pass the filters, as a RAGFile v0.1.0.

    It is written in batches; DuckDB keeps what it reads of the store in memory, and sorts words in 1 GB at most.
    Temporary files of about the size of the output lie beside it meanwhile. The same store gives the same bytes.

    Parameters
    ----------
    db_path
        The store.
    path
        The file to make. It is there whole or not at all.
    collection, tags_any, tags_all, metadata
        As for a query: whole documents, of which the document or one chunk passes.
    precision
        Bits of a number of a vector: 32 keeps every bit, 16 halves the vectors and rounds them to about 3 digits.
    byte_order
        "little", which today's machines search fastest, or "big".
    padding
        4, 8 or 16: records begin at multiples of it, after 1 to so many NULs.
    overwrite
        Replace a RAGFile that is there.

    Returns
    -------
    Exported
        Path, counts, size in bytes, notices.

    Raises
    ------
    InputError
        A filter or choice is not valid, or a vector does not fit into 16 bits.
    StoreExistsError, StoreError, FormatError
        The output exists, cannot be written or is another kind of file; the store cannot be read or is damaged.
    """
    choice = {"collection": collection, "tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    check_choices(precision, byte_order, padding)
    with stored_contents(db_path, **choice) as contents:  # type: ignore[arg-type]
        return write_ragfile(
            contents, path, precision=precision, byte_order=byte_order, padding=padding, overwrite=overwrite
        )


def import_ragfile(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write what a RAGFile of sqlrag holds into a new store, or into one that there is.

    Parameters
    ----------
    path
        The RAGFile. Vectors of 32 bits are stored bit for bit; those of 16 bits are brought back to length 1.
    db_path
        The store; documents of the same ids are replaced.
    embedder
        What made the vectors, to be proved; the file itself names it.
    overwrite
        Make the store anew where it exists.

    Returns
    -------
    Imported
        Path, counts, notices.

    Raises
    ------
    FormatError
        The file is damaged, was edited or is of another writer; the store is as it was.
    ModelMismatchError
        The store holds vectors of another model.
    NotFoundError, StoreError
        There is no such file; the store cannot be written.
    """
    with read_ragfile(path) as contents:
        return write_store(contents, db_path, embedder=embedder, overwrite=overwrite)
