"""``sqlrag publish``: a folder of static files with a search page that searches in the browser."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sqlrag import adapters, arguments
from sqlrag.arguments import counted, meant_or_there
from sqlrag.embedders.onnx import bundle_files
from sqlrag.embedders.weights import MINILM, bundle_is_installed
from sqlrag.engines.duckdb import lexical, row_tables
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.files import real_path
from sqlrag.engines.duckdb.metadata import model_identity, required_metadata
from sqlrag.engines.duckdb.rewrite import compact
from sqlrag.engines.duckdb.rows import counted_names, metadata_fields_of
from sqlrag.engines.duckdb.schema import read_sql, run_script
from sqlrag.errors import FormatError, InputError, NotFoundError, StoreError, StoreExistsError
from sqlrag.formats.convert import convert
from sqlrag.formats.targets import size_of
from sqlrag.ingest.row_source import Definition
from sqlrag.links import is_markdown
from sqlrag.normalize import clean_name
from sqlrag.ranking.filters import strings
from sqlrag.types import ROW

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from sqlrag.types import ModelIdentity

With = Literal["all", "words", "vectors"]

MOST_BYTES = 512_000_000

"""The largest file to publish: a browser loads it as a whole, and has 4 GB for it and for what it is searched with."""

RANGES_FROM = 64_000_000

"""From this size on the file is read in ranges, where the server has them: less is loaded before the first results, but
the browser does not keep it."""

_FORMAT = 1

# Collections, tags and fields of metadata that the page offers, and values of each field.
_MOST_NAMES, _MOST_VALUES = 500, 50

_SITE = Path(__file__).parent / "site"

_PAGE = Path(str(adapters.__file__)).parent / "rest" / "page"

# Of the page of the server, what is of use without one.
_NOT_PUBLISHED = ("docs.html", "docs.js", "index.html")

_CDN = "https://cdn.jsdelivr.net/npm"

_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src data:; connect-src 'self'{}; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'"
)


class _Package(NamedTuple):
    """A package of npm: its version that is tested, the files of it by the name that they get, and their digests."""

    name: str
    version: str
    folder: str
    files: dict[str, str]
    digests: dict[str, str]


_DUCKDB = _Package(
    "@duckdb/duckdb-wasm",
    "1.32.0",
    "duckdb",
    {
        "duckdb-browser-blocking.js": "dist/duckdb-browser-blocking.mjs",
        "duckdb-eh.wasm": "dist/duckdb-eh.wasm",
    },
    {
        "duckdb-browser-blocking.js": "5dV7WtO8oAr5X2cK93kDWK1C0AUFzfRqnBPspp6NQAkfpqJv2pc3aeWc5kcC39hJ",
        "duckdb-eh.wasm": "hw3GjeJZY5QapQ8mwqMHXBPVmTLO+jKm5dlDwkGsEfjyu/HcXx1d0Rwlr/ZAShjq",
    },
)

_ARROW = _Package(
    "apache-arrow",
    "17.0.0",
    "duckdb",
    {"apache-arrow.js": "Arrow.esnext.min.js"},
    {"apache-arrow.js": "iUMlNn216JffDiVnzRl9BE5TZwRiOJi6anfbxH4NghebjVZWYTsK6csf8L5UB42T"},
)

_OF_THE_MODEL = (
    _Package(
        "onnxruntime-web",
        "1.30.0",
        "onnxruntime",
        {
            "ort.wasm.bundle.min.js": "dist/ort.wasm.bundle.min.mjs",
            "ort-wasm-simd-threaded.wasm": "dist/ort-wasm-simd-threaded.wasm",
        },
        {
            "ort.wasm.bundle.min.js": "PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
            "ort-wasm-simd-threaded.wasm": "vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
        },
    ),
    _Package(
        "@huggingface/tokenizers",
        "0.2.0",
        "tokenizers",
        {"tokenizers.min.js": "dist/tokenizers.min.mjs"},
        {"tokenizers.min.js": "Tl2lMbeE3RCGFLOUGQ7LhvaagysxiOw/9dulz2sD6jxNa1MckRJQBbYdVHhOoqEs"},
    ),
)

# What the scripts here use of those of a CDN: a module names its exports before it has them.
_EXPORTS = {
    "duckdb-browser-blocking.js": (
        "BROWSER_RUNTIME, DuckDBAccessMode, DuckDBDataProtocol, VoidLogger, createDuckDB, getPlatformFeatures"
    ),
    "ort.wasm.bundle.min.js": "InferenceSession, Tensor, env",
    "tokenizers.min.js": "Tokenizer",
}

INSTALL = "npm install " + " ".join(f"{one.name}@{one.version}" for one in (_DUCKDB, *_OF_THE_MODEL))

"""The command that installs the libraries."""


@dataclass(frozen=True)
class Published:
    """What was published: the folder, counts, the bytes of each part, and notices."""

    path: Path
    documents: int
    chunks: int
    size_bytes: int
    parts: dict[str, int]
    notices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Format it as lines."""
        sizes = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in self.parts.items())
        counts = f"{counted(self.documents, 'document')}, {counted(self.chunks, 'chunk')}"
        return "\n".join([f"{self.path}: {counts}, {self.size_bytes / 1e6:.1f} MB ({sizes})", *self.notices])


def publish(
    db_path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    parts: With = "all",
    title: str | None = None,
    base_url: str | None = None,
    collection: str | Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    assets: str | os.PathLike[str] | None = None,
    cdn: bool = False,
    overwrite: bool = False,
    on_size: Callable[[str], None] = lambda _: None,
) -> Published:
    """Write a folder of static files: the search page of ``sqlrag serve``, which searches in the reader's browser.

    Whoever can open the page can read every document in it.

    Parameters
    ----------
    db_path
        The file.
    folder
        The folder to write; complete or absent.
    parts
        What can be searched: ``"all"``, ``"words"`` (half of the size, and no model), or ``"vectors"``.
    title
        The title of the page. None: the name of the file.
    base_url
        The address that the site will have, for search engines.
    collection
        Only the documents of this collection, or of one of these.
    leave_out
        Columns of tables that are not published, in whatever case: none that is the key of a table, or makes its text,
        title or tags. All others are, for readers' filters; the notices name them.
    assets
        The folder with ``node_modules`` that the libraries were installed into. None: the current folder, or one above.
    cdn
        Let the reader's browser load the libraries from jsDelivr, in the versions that are known here and with their
        digests, instead of copying them: ``assets`` is not looked at. The documents and the model stay in the folder.
    overwrite
        Replace a folder that was published before.
    on_size
        Gets a sentence with the sizes to expect, before anything is written.

    Returns
    -------
    Published
        ``path``, ``documents``, ``chunks``, ``size_bytes``, ``parts`` (bytes by part) and ``notices``.

    Raises
    ------
    InputError
        The file is too large for a browser, an option is not valid, nothing is in the collection, or a column cannot
        be left out.
    NotFoundError
        The libraries are not installed; the message has the command that does it, and the option without them.
    StoreExistsError
        The folder exists.
    FormatError
        A library has another form than the version that is known here.
    """
    arguments.choice("parts", parts, get_args(With))
    leave_out = strings("leave_out", leave_out) or []
    target = real_path(arguments.path("folder", folder))
    _check_target(target, overwrite)
    with Database.open(db_path) as database:
        settings = required_metadata(database)
        names = strings("collection", [collection] if isinstance(collection, str) else collection)
        sizes = database.cursor().execute(read_sql("publish/size"), {"collection": names}).fetchall()[0]
        mimes = [
            mime for (mime,) in database.cursor().execute(read_sql("publish/mimes")).fetchall() if is_markdown(mime)
        ]
        columns = _columns(database, names)
        left_out = _left_out(database, names, leave_out, columns)
        notices = _doubts(database, names, left_out)
        source = database.path
    if target.resolve() in source.resolve().parents:
        raise InputError(f"{source} is inside of {target}, where the site would take its place. Name another folder.")
    documents, chunks, vector_bytes, text_bytes = map(int, sizes)
    if not chunks:
        raise InputError(f"{source} has no chunk{f' in {names}' if names else ''}. See its collections: sqlrag info.")
    identity = model_identity(settings)
    without = _why_without_model(identity, parts)
    expected = text_bytes + (0 if parts == "words" else vector_bytes)
    about = f"{counted(chunks, 'chunk')}, texts {text_bytes / 1e6:.1f} MB"
    about += "" if parts == "words" else f", vectors {vector_bytes / 1e6:.1f} MB"
    if expected > MOST_BYTES:
        raise InputError(
            f"{source} is too large to be loaded by a browser: {about}, together more than {MOST_BYTES / 1e6:.0f} MB. "
            "Publish a part of it (--collection), or words alone (--with words), or serve it: sqlrag serve."
        )
    packages = [_DUCKDB, _ARROW, *(() if without else _OF_THE_MODEL)]
    found = {} if cdn else {package.name: _find(package, assets) for package in packages}
    libraries = sum(map(_size, packages, found.values()))
    about += f"; the libraries are those of {_CDN}" if cdn else f"; the libraries are {libraries / 1e6:.0f} MB"
    about += "" if without else f", the model {sum(map(len, bundle_files().values())) / 1e6:.0f} MB"
    on_size(f"About {about}.")

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(target, f"{target} could not be made: {error}") from error
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        site = Path(temporary) / "site"
        _copy_code(site)
        for package in packages:
            if cdn:
                _write_imports(package, site / "assets" / package.folder)
            else:
                _copy_package(package, found[package.name], site / "assets" / package.folder)
        if found:
            _write_licenses(found, site / "assets" / "licenses.txt")
        _write_database(source, site / "kb.duckdb", names, parts, identity.dimensions, left_out)
        facts = _facts(site, title or source.stem, settings, parts, identity, without)
        facts["markdown"] = [*filter(is_markdown, mimes)]  # whose text the page shows as Markdown
        if cdn:
            for part, package, name in (
                ("database", _DUCKDB, "duckdb-eh.wasm"),
                ("model", _OF_THE_MODEL[0], "ort-wasm-simd-threaded.wasm"),
            ):
                if facts[part] is not None:
                    facts[part]["wasm"], facts[part]["integrity"] = _at_cdn(package, name)
        _write_page(site, facts["title"], base_url, cdn)
        (site / "site.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False), "utf-8")
        version = _digest(*sorted(file for file in site.rglob("*") if file.is_file()))
        worker = (_SITE / "sw.js").read_text("utf-8").replace("VERSION", version)
        (site / "sw.js").write_text(worker, "utf-8")
        (site / ".nojekyll").touch()  # GitHub Pages then takes every file as it is
        of_the_model = [site / "assets" / name for name in ("model", "onnxruntime", "tokenizers")]
        bytes_of = {
            "documents": size_of(site / "kb.duckdb"),
            "DuckDB": size_of(site / "assets" / "duckdb"),
            "model": size_of(*(folder for folder in of_the_model if folder.is_dir())),
            "page": size_of(site / "page", site / "sqlrag", site / "index.html"),
        }
        _put(site, target)
    if without and parts != "words":
        notices.append(without)
    public = [name for name in columns if name not in left_out]
    if public:
        notices.append(f"Columns of tables that are published: {', '.join(public)}; see leave_out.")
    return Published(target, documents, chunks, size_of(target), bytes_of, notices)


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not _is_site(target):
        raise StoreExistsError(target, f"{target} exists and is no published site. Name a folder that does not exist.")
    if not overwrite:
        raise StoreExistsError(target, f"{target} exists. Publish it again with --overwrite.")


def _is_site(target: Path) -> bool:
    """Return whether a folder is one that was published."""
    try:
        facts = json.loads((target / "site.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(facts, dict) and {"format", "database"} <= facts.keys()


def _put(site: Path, target: Path) -> None:
    """Give the finished folder its name. Into an earlier one its parts are moved: what others have put there stays."""
    if not target.exists() or not any(target.iterdir()):
        site.rename(target)
        return
    before = site.with_name("before")
    before.mkdir()
    # The page that names the others comes last.
    for part in sorted(site.iterdir(), key=lambda part: (part.name == "index.html", part.name)):
        old = target / part.name
        if old.exists():
            old.rename(before / part.name)
        part.rename(old)


def _why_without_model(identity: ModelIdentity, parts: With) -> str | None:
    """Return why the questions cannot be embedded in a browser, None if they can."""
    if parts == "words":
        return "The site was published with words only."
    if identity.provider in ("onnx", "openvino") and identity.model_name == MINILM:
        if bundle_is_installed():
            return None
        why = "the weights that a browser can load are in the extra 'offline'"
    else:
        why = "it has no form that a browser can load"
    where = "there is nothing to search" if parts == "vectors" else "the page searches by words alone"
    text = f"The model {identity.model_name!r} is not published, because {why}: {where}."
    if parts == "vectors":
        raise InputError(text)
    return text


def _find(package: _Package, assets: str | os.PathLike[str] | None) -> Path:
    """Return the folder of an installed package of npm."""
    if assets is None:
        here = Path.cwd()
        starts = [here, *here.parents]
    else:
        starts = [real_path(arguments.path("assets", assets))]
    for start in starts:
        for modules in (start / "node_modules", start):
            folder = modules / package.name
            if all((folder / file).is_file() for file in package.files.values()):
                return folder
    where = "node_modules of the current folder or of one above it" if assets is None else str(assets)
    raise NotFoundError(
        f"The package {package.name} is not in {where}. Install the libraries there: {INSTALL}. "
        "Or let readers load them from a CDN: cdn=True."
    )


def _size(package: _Package, folder: Path) -> int:
    return size_of(*(folder / file for file in package.files.values()))


def _copy_code(site: Path) -> None:
    shutil.copytree(_PAGE, site / "page", ignore=shutil.ignore_patterns(*_NOT_PUBLISHED))
    shutil.copytree(_SITE, site / "sqlrag", ignore=shutil.ignore_patterns("sw.js"))


# How DuckDB's script imports Arrow: by a bare name, which a browser does not resolve.
_IMPORT = re.compile(r'import ?\* ?as (\w+) ?from ?"apache-arrow"')


def _copy_package(package: _Package, source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in package.files.items():
        shutil.copyfile(source / file, folder / name)
    if package is _DUCKDB:
        script = folder / "duckdb-browser-blocking.js"
        text, count = _IMPORT.subn(r'import \1 from"./apache-arrow.js"', script.read_text("utf-8"))
        if not count:
            raise FormatError(f"{source} is not known here. Install the version that is: {INSTALL}")
        script.write_text(text, "utf-8")
    elif package is _ARROW:
        script = folder / "apache-arrow.js"
        # It puts itself on "this", which a module does not have.
        wrapped = f"(function () {{\n{script.read_text('utf-8')}\n}}).call(scope);"
        text = f"const scope = {{}};\n{wrapped}\nexport default scope.Arrow;\n"
        script.write_text(text, "utf-8")


def _at_cdn(package: _Package, name: str) -> tuple[str, str]:
    """Return the address of a file at the CDN, and its digest."""
    return f"{_CDN}/{package.name}@{package.version}/{package.files[name]}", f"sha384-{package.digests[name]}"


def _write_imports(package: _Package, folder: Path) -> None:
    """Write scripts of the names of the copies that import those of the CDN."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _EXPORTS.keys() & package.files:
        needed = [_at_cdn(package, name), *([_at_cdn(_ARROW, "apache-arrow.js")] if package is _DUCKDB else [])]
        values = ",\n  ".join(map(json.dumps, needed))
        text = f"export const {{ {_EXPORTS[name]} }} = await imported(\n  {values},\n);\n"
        (folder / name).write_text(f'import {{ imported }} from "../../sqlrag/cdn.js";\n\n{text}', "utf-8")


def _write_licenses(found: dict[str, Path], target: Path) -> None:
    """Write the names, versions and licences of what was copied."""
    texts = []
    for name, folder in found.items():
        facts = json.loads((folder / "package.json").read_text("utf-8"))
        licences = sorted(file for file in folder.iterdir() if re.match(r"(?i)(licen[cs]e|notice)", file.name))
        head = f"{name} {facts.get('version')}, licence {facts.get('license')}"
        texts.append("\n\n".join([head, *(file.read_text("utf-8", "replace").strip() for file in licences)]))
    target.write_text("\n\n----\n\n".join(texts) + "\n", "utf-8")


def _columns(database: Database, names: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the columns of tables that are in these collections, all if None, with the collections that have each."""
    found = database.cursor().execute(read_sql("publish/columns"), {"collection": names, "row": ROW}).fetchall()
    return dict(found)


def _left_out(
    database: Database, names: Sequence[str] | None, leave_out: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the columns of these names, in whatever case.

    Raises InputError where one is not there, or where its values would be published by another way.
    """
    if not leave_out:
        return []
    con = database.cursor()
    rows = [row[0] for row in con.execute(read_sql("publish/rows"), {"collection": names, "row": ROW}).fetchall()]
    if unknown := sorted({*rows}.difference(row_tables.stored(con, rows))):
        raise InputError(
            f"No column can be left out (leave_out) of rows whose table the file does not have, such as {unknown[0]}: "
            "their ids, texts, titles and tags may be made of it. Publish the file that index_rows wrote, or other "
            "collections (--collection)."
        )
    wanted = {name.casefold(): name for name in leave_out}
    for collection, source in row_tables.sources(con).items():
        if names is not None and collection not in names:
            continue
        one = Definition.of(source)
        title = [one.title, "title" if collection in columns.get("title", ()) else None]
        parts = {"ids": [one.key], "texts": one.text_columns, "titles": title, "tags": [one.tags]}
        for name in wanted:
            found = [part for part, of in parts.items() if name in (clean_name(c).casefold() for c in of if c)]
            if found:
                raise InputError(
                    f"{wanted[name]!r} cannot be left out (leave_out): its values are in the {' and '.join(found)} of "
                    f"the rows of {collection}. Index the table with another column for these, or publish other "
                    "collections (--collection)."
                )
    there = {name: name.casefold() for name in columns}
    for folded, name in wanted.items():
        if folded not in there.values():
            near = meant_or_there(name, [*columns])
            raise InputError(f"There is no column {name!r} (leave_out){f'; {near}' if near else '.'}")
    return [name for name, folded in there.items() if folded in wanted]


def _doubts(database: Database, names: Sequence[str] | None, left_out: Sequence[str]) -> list[str]:
    """Return notices on rows that may show values of columns that are left out."""
    if not left_out:
        return []
    con = database.cursor()
    values = {"collection": names, "row": ROW, "names": left_out}
    notices = [
        f"Values of {name}, which is left out, are also in the id, text, title or tags of {counted(count, 'row')}, "
        f"such as {doc_id}."
        for name, count, doc_id in con.execute(read_sql("publish/seen_values"), values).fetchall()
    ]
    for collection in row_tables.sources(con):
        old = row_tables.of_earlier_columns(con, collection) if names is None or collection in names else []
        if old:
            notices.append(
                f"{counted(len(old), 'row')} of {collection}, such as {old[0]}, "
                f"{'is' if len(old) == 1 else 'are'} of before its columns changed: texts, titles and tags may be of a "
                "column that is left out. Read the whole table again with prune to remove what it has no more."
            )
    return notices


def _write_database(
    source: Path, target: Path, names: Sequence[str] | None, parts: With, dimensions: int, left_out: Sequence[str]
) -> None:
    convert(source, target, collection=names)
    with Database.open(target, read_only=False) as database:
        if left_out:
            with database.transaction() as con:
                removed = json.dumps(dict.fromkeys(left_out))
                run_script(con, "publish/without_columns", columns=removed, row=ROW)
                lexical.rebuild(con, required_metadata(database)["stemmer"])  # a column may count as a heading
        con = database.cursor()
        run_script(con, "publish/without_records")
        run_script(con, "publish/headings")
        if parts == "words":
            run_script(con, "publish/without_vectors", dimensions=dimensions)
        elif parts == "vectors":
            run_script(con, "publish/without_words")
    compact(target)
    with Database.open(target, read_only=False) as database:  # compact makes every macro anew
        database.cursor().execute(published_macro())


_HEADINGS = "fts_main_documents.heading_text(d.heading_path, d.chunk_index, d.metadata_, d.tags)"


def published_macro() -> str:
    """Return the macro ``clause_search`` as a published file has it: it reads headings from a table."""
    sql = read_sql("macros/clause_search")
    return sql.replace(_HEADINGS, "(SELECT p.headings FROM published_headings AS p WHERE p.rid = d.rid)")


def _facts(
    site: Path, title: str, settings: dict[str, str], parts: With, identity: ModelIdentity, without: str | None
) -> dict[str, Any]:
    """Return what the scripts need to know, and write the model. What they would have to ask the file for is in it."""
    with Database.open(site / "kb.duckdb") as database:
        con = database.cursor()
        documents, chunks = con.execute(read_sql("index/count_rows")).fetchall()[0]
        stops = sorted(lexical.stop_words(con))

        def select(name: str, **values: Any) -> list[tuple[Any, ...]]:
            return con.execute(read_sql(name), values).fetchall()

        collections, tags = (counted_names(select, kind, _MOST_NAMES, files=1) for kind in ("collections", "tags"))
        fields = metadata_fields_of(select, _MOST_NAMES, _MOST_VALUES)
    (site / "metadata.json").write_text(json.dumps(fields, ensure_ascii=False), "utf-8")
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "schema_version": settings["schema_version"],
        "title": title,
        "documents": documents,
        "collections": collections,
        "tags": tags,
        "embedding_model": settings["embedding_model"],
        "words": parts != "vectors",
        "database": {
            "url": f"kb.duckdb?v={_digest(site / 'kb.duckdb')}",
            "bytes": size_of(site / "kb.duckdb"),
            "ranges": size_of(site / "kb.duckdb") >= RANGES_FROM,
            "wasm": "assets/duckdb/duckdb-eh.wasm",
            "chunks": chunks,
            "dimensions": identity.dimensions,
            "stop_words": stops,
            "stemmer": settings["stemmer"],
            "heading_weight": float(settings["header_weight"]),
        },
        "model": None,
        "without": without,
    }
    if without is None:
        from sqlrag.embedders.weights import MINILM_WINDOW

        files = bundle_files()
        (site / "assets" / "model").mkdir()
        for name, content in files.items():
            (site / "assets" / "model" / name).write_bytes(content)
        facts["model"] = {
            "name": identity.model_name,
            "query_prefix": identity.query_prefix,
            "max_tokens": MINILM_WINDOW,
            "url": "assets/model/model.onnx",
            "bytes": len(files["model.onnx"]),
            "tokenizer": "assets/model/tokenizer.json",
            "tokenizer_bytes": len(files["tokenizer.json"]),
            "wasm": "assets/onnxruntime/ort-wasm-simd-threaded.wasm",
        }
    return facts


def _write_page(site: Path, title: str, base_url: str | None, cdn: bool) -> None:
    """Write the page of the server with another title, a policy, and the script that answers its requests."""
    name = html.escape(title)
    policy = _POLICY.format(f" {'/'.join(_CDN.split('/')[:3])}" if cdn else "")
    added = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    added += '\n  <meta name="sqlrag-backend" content="sqlrag/backend.js">'
    # Before the page's own scripts, which wait for what this one loads.
    added += '\n  <script type="module" src="sqlrag/backend.js"></script>'
    if base_url is not None:
        added += f'\n  <link rel="canonical" href="{html.escape(base_url)}">'
    page = (_PAGE / "index.html").read_text("utf-8")
    for old, new in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n  {added}'),
        ("<title>Search – sqlrag</title>", f"<title>Search – {name}</title>"),
        ('<h1><a href="./">sqlrag</a></h1>', f'<h1><a href="./">{name}</a></h1>'),
    ):
        before, found, after = page.partition(old)
        assert found, old  # noqa: S101 - both are of this package
        page = before + new + after
    (site / "index.html").write_text(page, "utf-8")


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
