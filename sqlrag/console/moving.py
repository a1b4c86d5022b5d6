"""``sqlrag push`` and ``pull``: a file into Postgres, and back."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks the names up
from typing import Annotated

import typer

from sqlrag.console.app import command
from sqlrag.console.options import Collection, FormatName, Metadata, TagsAll, TagsAny, metadata_fields, option, place
from sqlrag.console.printing import Format, write_done

Url = Annotated[str, typer.Argument(metavar="URL", help="postgresql://user@host/database", show_default=False)]


@command(
    "push",
    "Write a file into Postgres.",
    "sqlrag push kb.duckdb postgresql://localhost/kb",
    "sqlrag push kb.duckdb 'postgresql://localhost/kb?schema=team' --collection default --prune",
)
def push(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file.", show_default=False, parser=place)],
    url: Url,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    prune: Annotated[bool, option("--prune", help="Remove documents there that the file does not hold.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write a file, or a choice of its documents, into a store in Postgres, which is made where there is none.

    What is there already is skipped, so that a push that was ended goes on; what was written is read again and
    compared. Needs the extra "postgres".
    """
    from sqlrag.pushing.pushing import push

    done = push(
        file,
        url,
        collection=collection,
        tags_any=tags_any,
        tags_all=tags_all,
        metadata=metadata_fields(metadata),
        prune=prune,
    )
    write_done(vars(done), str(done), form)


@command(
    "pull",
    "Write a store in Postgres into a file.",
    "sqlrag pull postgresql://localhost/kb kb.duckdb",
    "sqlrag pull postgresql://localhost/kb api.duckdb --collection api --overwrite",
)
def pull(
    url: Url,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make.", show_default=False)],
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    overwrite: Annotated[bool, option("--overwrite", help="Replace the file if it exists.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Write a store in Postgres, or a choice of its documents, into a file; one that exists takes the documents in.

    What was written is read again and compared. Needs the extra "postgres".
    """
    from sqlrag.pushing.postgres import pull

    done = pull(
        url,
        file,
        collection=collection,
        tags_any=tags_any,
        tags_all=tags_all,
        metadata=metadata_fields(metadata),
        overwrite=overwrite,
    )
    write_done({**vars(done), "path": str(done.path)}, str(done), form)
