"""``sqlrag init``, ``watch`` and ``doctor``: a configuration, a file kept up to date, and what is missing."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import time
from contextlib import closing
from datetime import datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from sqlrag import __version__
from sqlrag.arguments import counted, failure_lines
from sqlrag.cli import config, printing
from sqlrag.cli.app import command, noted
from sqlrag.cli.build import folders_not_there, folders_to_name, folders_to_read, note_patterns, one_file
from sqlrag.cli.maintain import remedy_of
from sqlrag.cli.options import DbsInstead, Files, FormatName, IgnoreAgain, Wait, from_environment, option
from sqlrag.cli.printing import Format, size, write, write_message, write_rows
from sqlrag.errors import (
    InputError,
    MissingExtraError,
    ModelUnavailableError,
    NotFoundError,
    ProviderError,
    SqlragError,
    StoreError,
    StoreLockedError,
)
from sqlrag.search.open import is_address
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from sqlrag.ingest.run import UpdateReport


@command("init", "Write a sqlrag.toml with comments.", "sqlrag init docs", "sqlrag init docs guides -o kb.duckdb")
def init(
    folder: Annotated[
        list[Path] | None, typer.Argument(metavar="[FOLDER]...", help="The collections.", show_default=False)
    ] = None,
    output: Annotated[
        Path, option("--output", "-o", metavar="FILE", help="The search file.", show_default=True)
    ] = Path("kb.duckdb"),
) -> None:
    """Write sqlrag.toml into the working folder: the file, a collection for each folder, and every key as a comment."""
    lines = [
        "# Defaults of sqlrag's command line. Options and environment variables come before them. No passwords and no",
        "# keys, only names of environment variables. Paths begin at the folder of this file. Behind a # is the",
        "# default, or an example where it says so.",
    ]
    for table, keys in config.known_keys().items():
        lines += ["", f"[{table}]"]
        for key, options in keys.items():
            shown = [*options.values()] or [config.NO_OPTIONS[key]]
            one = next((one for one in shown if one.default is not None), shown[0])
            is_file = (table, key) == ("store", "file")
            lines += [
                f"# {one.help}",
                f"file = {_toml(output.as_posix())}" if is_file else f"# {key} = {one.example(key)}",
            ]
    stored, taken = _stored_collections(output), set[str]()
    for path in folder or [Path("docs")]:
        name = stored.get(os.path.realpath(path)) or re.sub(r"[:#/]|[^\w. -]", "-", path.absolute().name) or "default"
        mark = "" if folder and name not in taken else "# "
        if name in taken:
            write_message(
                f"note: {path} is a comment only: {output} has it as the collection {name!r}, as it has another of "
                "these folders, and a collection has one folder here."
            )
        elif folder and not path.is_dir():
            write_message(f"note: {path} is not a folder yet.")
        taken.add(name)
        ids = [] if name == DEFAULT_COLLECTION else [f"# The ids of its documents begin with {_toml(f'{name}:')}"]
        lines += [
            "",
            f"{mark}[collections.{name if _BARE_KEY.fullmatch(name) else _toml(name)}]",
            *ids,
            f"{mark}folder = {_toml(path.as_posix())}",
        ]
        lines += ['# pattern = ["*.md"]', '# ignore = ["drafts/"]']
    target = Path.cwd() / config.FILE_NAME
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except FileExistsError as error:
        raise InputError(f"{target} exists. Edit it, or remove it first.") from error
    write(str(target))


def _stored_collections(file: Path) -> dict[str, str]:
    """Return the collections of the folders that a file was built from, by the real path of the folder."""
    from sqlrag.ingest.update import folders_of

    try:
        known = folders_of(file)[0] if file.exists() else []
    except SqlragError as error:
        write_message(f"note: The collections of {file} cannot be looked up, so the folders' names are used. {error}")
        known = []
    return {os.path.realpath(one.path): one.collection for one in reversed(known)}


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # what TOML takes without quotes


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# What passes without a change of the folder.
_PASSING = (StoreLockedError, ProviderError, ModelUnavailableError)

# Changes are read together after a second without one, but not later than ten after the first.
_QUIET_MS, _LONGEST_MS = 1000, 10_000

# How often it is looked whether a folder is there and something is due; the longest wait before a new attempt.
_TICK_SECONDS, _LONGEST_WAIT = 1.0, 60.0


@command("watch", "Keep a file up to date with its folders.", "sqlrag watch docs --db kb.duckdb", "sqlrag watch")
def watch(
    db: Annotated[
        Path | None, option("--db", metavar="FILE", envvar="SQLRAG_DB", help="The file to update. [the only one here]")
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="[the collections of sqlrag.toml]", show_default=False),
    ] = None,
    collection: Annotated[
        str | None, option("--collection", metavar="NAME", help="The collection of the folders. [default]")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        option(
            "--pattern", metavar="GLOB", help="Only files whose name or path matches. Repeatable. [as the last time]"
        ),
    ] = None,
    ignore: IgnoreAgain = None,
    max_bytes: Annotated[int, option("--max-bytes", help="Larger files are skipped.", show_default=True)] = 64 * 2**20,
    skip_duplicates: Annotated[
        bool, option("--skip-duplicates", help="Leave out files with the same bytes and type as another one.")
    ] = False,
    prune: Annotated[
        bool, option("--prune/--no-prune", help="Remove documents that are no longer in their folder. [yes]")
    ] = True,
    wait: Wait = None,
) -> None:
    """Update a file, and again whenever something changes in its folders, until Ctrl-C. Needs the extra "watch".

    Changes are read together when there was none for a second. The file is open only meanwhile; where another process
    has it, or the model does not answer, that is tried again. A folder that is gone is waited for, and removes nothing.
    """
    try:
        import watchfiles  # noqa: F401 - before anything is said
    except ImportError as error:
        raise MissingExtraError("sqlrag watch", "watch") from error

    db = one_file(None, db)
    if not db.exists():
        raise NotFoundError(f"{db} does not exist. Build it first: sqlrag build FOLDER -o {db}")
    places: list[Path | None] = [*(folder or ())] or [None]
    wanted = [one for each in places for one in config.sources(each, collection, pattern, ignore)]
    for source in wanted:
        if not source.folder.is_dir():
            raise NotFoundError(f"{source.folder} is not a folder. One that goes away later is waited for.")
    options = {"prune": prune, "skip_duplicates": skip_duplicates, "max_bytes": max_bytes, "wait_seconds": wait}
    read = {"pattern": pattern, "ignore": ignore}
    watched = [_Watched(db, one._replace(folder=one.folder.absolute()), options, read) for one in wanted]
    write_message(f"Watching {', '.join(str(one.folder) for one in wanted)} for {db}; Ctrl-C ends it.")
    while True:
        seen = [one.look() for one in watched]
        with closing(_changes([one.source.folder for one in watched if one.identity])) as stream:
            while True:
                try:
                    changed = next(stream)
                except KeyboardInterrupt:
                    return
                for one in watched:
                    one.note(changed)
                if [one.look() for one in watched] != seen:
                    break  # a folder went, came back or is another one: it is watched anew
                for one in watched:
                    one.update()


def _changes(folders: list[Path]) -> Generator[Iterable[str], None, None]:
    """Yield the paths that changed, nothing where a while passes without one."""
    import watchfiles

    while not folders:
        time.sleep(_TICK_SECONDS)
        yield ()
    for changes in watchfiles.watch(
        *folders,
        watch_filter=None,
        debounce=_LONGEST_MS,
        step=_QUIET_MS,
        rust_timeout=int(_TICK_SECONDS * 1000),
        yield_on_timeout=True,
    ):
        yield [path for _, path in changes]


class _Watched:
    """A folder that is watched: which one it is, when it is to be read again, and what was said of it."""

    def __init__(
        self, db: Path, source: config.Source, options: dict[str, Any], read: dict[str, list[str] | None]
    ) -> None:
        self.db, self.source, self.options, self.read = db, source, options, read
        self.identity: tuple[int, int] | None = (0, 0)
        self._due: float | None = None
        self._wait = 1.0
        self._said = ""
        self._works = False
        self._failures: set[Any] = set()

    def look(self) -> tuple[int, int] | None:
        """Return which folder it is, None where it is gone; another one than before has to be read."""
        before = self.identity
        try:
            status = self.source.folder.stat()
            self.identity = (status.st_dev, status.st_ino) if self.source.folder.is_dir() else None
        except OSError:
            self.identity = None
        if self.identity is None:
            self._say(f"{self.source.folder} is not there; waiting for it. Its documents stay.")
        elif self.identity != before:
            self._due = 0.0
        return self.identity

    def note(self, changed: Iterable[str]) -> None:
        """Have the folder read again if one of the paths may be of a document."""
        if any(self._matters(path) for path in changed):
            self._due, self._wait = 0.0, 1.0

    def _matters(self, path: str) -> bool:
        from sqlrag.ingest.folder import IGNORE_FILE
        from sqlrag.ingest.readers import reader_of

        place = Path(path)
        if not place.is_relative_to(self.source.folder) or path.startswith(str(self.db.absolute())):
            return False
        if place.name == IGNORE_FILE:
            return True
        hidden = any(part.startswith(".") for part in place.relative_to(self.source.folder).parts)
        return not hidden and (reader_of(place.suffix) is not None or not place.is_file())

    def update(self) -> None:
        """Read the folder if that is due; what may pass is tried again, later each time."""
        from sqlrag.ingest.update import folders_of, update_embeddings

        if self._due is None or self.identity is None or time.monotonic() < self._due:
            return
        one, began = self.source, time.monotonic()
        try:
            known, *_ = folders_of(self.db, wait_seconds=self.options["wait_seconds"])
            (one,) = folders_to_read(self.db, known, False, one.folder, one.collection, **self.read)
            if not self._works:
                note_patterns(one, self.read["pattern"])
            report = update_embeddings(
                one.folder,
                self.db,
                collection=one.collection,
                patterns=one.pattern,
                ignore=one.ignore,
                verbose=False,
                **self.options,
            )
        except SqlragError as error:
            if isinstance(error, _PASSING) or (self._works and isinstance(error, StoreError)):
                self._due = time.monotonic() + self._wait
                self._say(f"{error} Trying again, at least every {_LONGEST_WAIT:.0f} seconds.")
                self._wait = min(2 * self._wait, _LONGEST_WAIT)
            elif self._works or isinstance(error, NotFoundError):
                self._due = None
                self._say(f"{one.folder}: {error} The next change is awaited.")
            else:
                raise
        else:
            self._due, self._wait, self._said, self._works = None, 1.0, "", True
            self._report(report, time.monotonic() - began)

    def _report(self, report: UpdateReport, seconds: float) -> None:
        """Write a line of what has changed, and the failures that are new."""
        fresh = sorted({*report.failures} - self._failures)
        for line in failure_lines(fresh, ""):
            write_message(line)
        for note in report.warnings:
            if note not in noted:
                noted.add(note)
                write_message(f"note: {note}")
        new, self._failures = {*report.failures} - self._failures, {*report.failures}
        lists: dict[str, list[Any]] = {what: getattr(report, what) for what in ("added", "changed", "removed")}
        lists["renamed"] = [f"{one.old} to {one.new}" for one in report.renamed]
        done = [
            f"{len(names)} {what} ({', '.join(names[:3])}{', …' if names[3:] else ''})"
            for what, names in lists.items()
            if names
        ]
        if done or new:
            failed = [f"{len(new)} failed"] if new else []
            write(f"{datetime.now():%H:%M:%S} {self.source.folder}: {', '.join([*done, *failed])}; {seconds:.1f} s")

    def _say(self, text: str) -> None:
        """Write a message once, until there is another."""
        if text != self._said:
            self._said = text
            write_message(text)


class _Finding(NamedTuple):
    """What was looked at, "ok", "note" or "broken", what was found, and the command or step that mends it."""

    topic: str
    state: str
    found: str
    remedy: str = ""


@command("doctor", "Say what is missing here and how to mend it.", "sqlrag doctor", "sqlrag doctor kb.duckdb")
def doctor(file: Files = None, db: DbsInstead = None, form: FormatName = Format.table) -> int:
    """Look at versions, extras, models, the configuration, the disk and a file; each fault has the step that mends it.

    Nothing is downloaded, and no other machine is asked but the servers that are configured. The exit code is 1 if
    something is broken.
    """
    named = [*(file or ()), *(db or ())] or from_environment()
    findings = [*_versions(), *_extras()]
    settings = None
    try:
        path = config.find([one if one.is_dir() else one.parent for one in named if not is_address(one)])
        settings = config.load(path) if path else None
        found = f"{path}" if path else "none: every option has its own default"
        findings.append(_Finding("configuration", "ok", found, "" if path else "sqlrag init"))
    except SqlragError as error:
        findings.append(_Finding("configuration", "broken", str(error), "Correct the line, or pass --no-config."))
    values = settings.values if settings else {}
    for source in settings.collections if settings else ():
        if not source.folder.is_dir():
            topic = f"[collections.{source.collection}] folder"
            findings.append(_Finding(topic, "broken", f"{source.folder} is no folder", f"Correct it in {path}."))
    findings += [*_models(), *_servers(values)]
    if not named and "file" in values.get("store", {}):
        named = [Path(values["store"]["file"])]
    here = [] if named else sorted(Path().glob("*.duckdb"))
    if here[1:]:
        among = ", ".join(map(str, here[:5])) + " …" * bool(here[5:])
        findings.append(_Finding("file", "note", f"none is named; here are {among}", f"sqlrag doctor {here[0]}"))
    for one in named or here[:1] * (len(here) == 1):
        findings += _file(one)
    rows = [one._asdict() for one in findings]
    findings = [*_in_short(findings)]
    width = max(len(one.topic) for one in findings)
    lines = [f"{one.state:<7}{one.topic:<{width}}  {one.found}" for one in findings]
    lines = [
        line + (f"\n{'':<{width + 9}}{one.remedy}" if one.remedy else "")
        for line, one in zip(lines, findings, strict=True)
    ]
    write_rows(rows, list(_Finding._fields), form, "\n".join(lines))
    return 1 if any(one.state == "broken" for one in findings) else 0


def _versions() -> Iterator[_Finding]:
    duckdb = version("duckdb")
    found = f"sqlrag {__version__}, DuckDB {duckdb}, Python {platform.python_version()}, {platform.platform()}"
    yield _Finding("versions", "ok", found)
    free = shutil.disk_usage(Path.cwd()).free
    state = "broken" if free < _LEAST_DISK else "ok"
    yield _Finding("disk", state, f"{size(free)} free here", "Free some space: a build needs it." * (state != "ok"))


_LEAST_DISK = 100_000_000


def _extras() -> Iterator[_Finding]:
    """Yield the extras that are installed, and the others, each with the command that installs it."""
    missing: dict[str, list[str]] = {}
    for line in requires("sqlrag-duckdb") or ():
        found = re.match(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]", line)
        if found is None or found[2] in ("test", "docs"):
            continue
        missing.setdefault(found[2], [])
        try:
            version(found[1])
        except PackageNotFoundError:
            missing[found[2]].append(found[1])
    yield _Finding("extras", "ok", f"installed: {', '.join(one for one in missing if not missing[one]) or 'none'}")
    for extra, packages in missing.items():
        if packages:
            command = f"pip install 'sqlrag-duckdb[{extra}]'"
            yield _Finding(f"extra {extra}", "note", f"not installed: {', '.join(packages)}", command)


def _in_short(findings: list[_Finding]) -> Iterator[_Finding]:
    """Yield the findings with one for all extras that are not installed; JSON and CSV have the packages of each."""
    missing = [one.topic.removeprefix("extra ") for one in findings if one.topic.startswith("extra ")]
    for one in findings:
        if not one.topic.startswith("extra "):
            yield one
        elif missing and one.topic == f"extra {missing[0]}":
            names = missing[0] if not missing[1:] else "NAME"
            yield _Finding("", "note", f"not installed: {', '.join(missing)}", f"pip install 'sqlrag-duckdb[{names}]'")


def _models() -> Iterator[_Finding]:
    from sqlrag.embedders.base import models

    found = models()
    ready = [f"{one.model_name} ({one.provider})" for one in found.ready]
    remedy = "" if ready else "pip install 'sqlrag-duckdb[offline]'"
    yield _Finding("models", "ok" if ready else "note", f"ready without network: {', '.join(ready) or 'none'}", remedy)
    yield _Finding("providers", "ok", f"usable: {', '.join(one.name for one in found.providers if one.usable)}")


def _servers(values: dict[str, dict[str, Any]]) -> Iterator[_Finding]:
    """Yield the state of the servers and variables that are configured."""
    for topic, value in ((f"[{table}] {key}", value) for table in values for key, value in values[table].items()):
        if topic.endswith("_env"):
            state, found = ("ok", "set") if os.environ.get(value, "").strip() else ("broken", "not set")
            yield _Finding(topic, state, f"{value} is {found}", f"export {value}=…" if state == "broken" else "")
        elif topic.endswith("base_url"):
            parts = urlsplit(value)
            try:
                port = parts.port or (443 if parts.scheme == "https" else 80)
                socket.create_connection((parts.hostname or "", port), timeout=2).close()
                yield _Finding(topic, "ok", f"{value} answers")
            except (OSError, ValueError) as error:
                found = f"{value} does not answer: {error}"
                yield _Finding(topic, "broken", found, "Start it, or correct the address.")


def _file(place: Path) -> Iterator[_Finding]:
    """Yield the state of a file: whether it opens, what a quick check says, and whether its model is here."""
    from sqlrag.embedders.base import TWINS, models, short_name
    from sqlrag.engines.duckdb.check import check
    from sqlrag.ingest.kept import left_by_an_interrupted_run
    from sqlrag.ingest.update import folders_of, twice_read
    from sqlrag.search.open import open_one

    topic = str(place)
    try:
        with open_one(place) as store:
            facts = store.get_embedding_metadata()
        problems = [] if is_address(place) else check(place, quick=True)
        folders, _, unknown = ([], {}, {}) if is_address(place) or problems else folders_of(place)
    except NotFoundError as error:
        found, _, remedy = printing.in_words_of_the_door(str(error)).partition(". Make it with ")
        yield _Finding(topic, "broken", found, remedy.removesuffix("."))
        return
    except StoreLockedError as error:
        remedy = f"Let process {error.pid} end, or wait: --wait 60" if error.pid else "Wait for it: --wait 60"
        yield _Finding(topic, "broken", str(error).partition(". Wait until")[0].removesuffix("."), remedy)
        return
    except SqlragError as error:
        found, remedy = printing.in_words_of_the_door(str(error)), ""
        if " is damaged or cut short" in found:
            found, _, remedy = found.partition(". Copy a backup")
            remedy = f"copy a backup{remedy}"
        elif "damaged" in found and "the log beside it" not in found:
            remedy = remedy_of(place, ["damaged_blocks"])
        yield _Finding(topic, "broken", found, remedy)
        return
    yield _Finding(topic, "ok", f"opens; schema {facts['store']['schema_version']}")
    for problem in problems:
        found = f"{problem.check}: {counted(problem.rows, 'row')}; {problem.rule}"
        yield _Finding(topic, "broken", found, remedy_of(place, [problem.check]))
    if not problems:
        yield _Finding(topic, "ok", "the quick check finds no problem; the word index is in step")
    if not is_address(place) and (said := left_by_an_interrupted_run(place)):
        found, _, remedy = said.partition(". ")
        yield _Finding(topic, "note", found, remedy)
    for said in folders_not_there(place, folders):
        found, _, remedy = said.partition(" is not there. ")
        yield _Finding(topic, "note", f"{found} is not there", remedy)
    for said in folders_to_name(place, unknown):
        found, _, remedy = said.partition(" is not known. ")
        yield _Finding(topic, "note", f"{found} is not known", remedy)
    for note in twice_read(place, folders):
        found, _, remedy = printing.in_words_of_the_door(note).removesuffix(".").partition(". To remove it from one: ")
        yield _Finding(topic, "note", found, remedy)
    model, provider = facts["embedding"]["model"], facts["embedding"]["provider"]
    known = models()
    state = next((one for one in known.providers if one.name == provider), None)
    here = {one.provider for one in known.ready if short_name(one.model_name) == short_name(model)}
    served = state is not None and state.usable and provider in ("openai", "ollama", "hashing")
    reason, pip = state.reason if state else "", ""
    if named := re.search(r"(?:: )?(pip install '[^']+')", reason):
        reason, pip = reason.replace(named[0], "").removesuffix(" Install it with"), named[1]
    if served or provider in here:
        yield _Finding(topic, "ok", f"its model {model} ({provider}) is here")
    elif TWINS.get(provider) in here:
        yield _Finding(topic, "ok", f"its model {model} ({provider}) is here by the provider {TWINS[provider]}", pip)
    else:
        why = reason or "it is not here yet, and is loaded when it is first used"
        yield _Finding(topic, "note", f"its model {model} ({provider}): {why}", pip or "sqlrag models")
