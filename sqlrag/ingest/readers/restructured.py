"""reStructuredText as Markdown, with docutils of the extra ``formats``; nothing that it names is included or run."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlrag.errors import DocumentError, MissingExtraError
from sqlrag.ingest.readers.encoding import decode
from sqlrag.ingest.readers.text import kind_of
from sqlrag.ingest.readers.web import html_to_markdown
from sqlrag.ingest.readers.writing import converted
from sqlrag.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlrag.types import Document

# The directives and roles of docutils belong to the whole process.
_LOCK = new_lock()

_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,  # no remarks of the parser inside the text, and none on the terminal
    "halt_level": 5,
    "_disable_config": True,
    "initial_header_level": "1",
    "doctitle_xform": False,  # a title is a heading like others
    "sectsubtitle_xform": False,
    "syntax_highlight": "none",
    "math_output": "LaTeX",
    "embed_stylesheet": False,
    "stylesheet_path": "",
    "smart_quotes": False,
    "line_length_limit": 1_000_000,
}

# ``text <target>`` of a role, of which the text is shown; "!" and "~" are signs of Sphinx.
_TITLED = re.compile(r"(.+?)\s*<([^<>]+)>", re.DOTALL)

# Directives of Sphinx whose content is not text, but names of files and options.
_NO_TEXT = {"toctree", "index", "currentmodule", "module", "highlight", "tabularcolumns", "contents", "include"}

# Those whose argument is a condition or a class, and their content is text.
_NO_ARGUMENT = {"only", "ifconfig", "rst-class", "cssclass", "hlist", "tab-set", "grid"}

# docutils gives a picture without a description the name of its file.
_NAME_AS_ALT = re.compile(r'<img alt="([^"]+)"(?=[^<>]* src="\1")')

_VERSIONS = {
    "deprecated": "Deprecated since version ",
    "versionadded": "Added in version ",
    "versionchanged": "Changed in version ",
    "versionremoved": "Removed in version ",
}

# Roles of names in programs, which a dot may begin.
_NAMES = {"any", "attr", "class", "data", "exc", "func", "meth", "mod", "obj"}

# Roles of standards by number, which Sphinx gives a title, too.
_NUMBERED = {"pep": "https://peps.python.org/pep-{:0>4}", "rfc": "https://datatracker.ietf.org/doc/html/rfc{}"}

_CODE = {
    "code-block",
    "sourcecode",
    "highlight",
    "prompt",
    "ipython",
    "doctest",
    "testcode",
    "testoutput",
    "parsed-literal",
}


def read_rst(data: bytes, doc_id: str, _: object = None) -> Document:
    """Return the text of a reStructuredText file as Markdown.

    Directives and roles that docutils does not know, as those of Sphinx, give their arguments and contents.

    Raises
    ------
    DocumentError
        The bytes are not text, or docutils cannot read them; status "empty" where there is no text.
    MissingExtraError
        docutils is not installed.
    """
    kind = kind_of(data)
    if kind and kind != "an HTML page":
        raise DocumentError(doc_id, f"the content is not text: it is {kind}; give the file its right suffix")
    text, warnings = decode(data, doc_id)
    publish = _publisher()
    try:
        with _LOCK, _tolerant():
            parts = publish(text, source_path=doc_id, settings_overrides=_SETTINGS)
    except RecursionError as error:
        raise DocumentError(doc_id, "not readable as reStructuredText: it is nested too deeply") from error
    # docutils raises SystemMessage and, on odd input, others.
    except Exception as error:
        raise DocumentError(doc_id, f"not readable as reStructuredText ({type(error).__name__}: {error})") from error
    page = html_to_markdown(_NAME_AS_ALT.sub('<img alt=""', parts["html_body"]))
    return converted(doc_id, [page.text], warnings=warnings)


def _publisher() -> Callable[..., dict[str, str]]:
    try:
        from docutils.core import publish_parts
        from docutils.writers.html5_polyglot import Writer
    except ImportError as error:
        raise MissingExtraError("Reading .rst files", "formats") from error
    return partial(publish_parts, writer=Writer())


@contextmanager
def _tolerant() -> Iterator[None]:
    """Let docutils read what it does not know, within the lock."""
    from docutils.parsers.rst import directives, roles

    known_directive, known_role = directives.directive, roles.role

    def directive(name: str, language: Any, document: Any) -> Any:
        if name.rpartition(":")[2] in _NO_TEXT:
            return _directives()["nothing"], []
        if name in _CODE:
            return _directives()["code"], []
        found, messages = known_directive(name, language, document)
        return (found, messages) if found is not None else (_directives()["anything"], [])

    def role(name: str, language: Any, line: int, reporter: Any) -> Any:
        if name in _NUMBERED:
            return _role, []
        found, messages = known_role(name, language, line, reporter)
        return (found, messages) if found is not None else (_role, [])

    directives.directive, roles.role = directive, role
    try:
        yield
    finally:
        directives.directive, roles.role = known_directive, known_role


def _role(name: str, raw: str, text: str, line: int, inliner: Any, options: Any = None, content: Any = None) -> Any:  # noqa: ARG001
    from docutils import nodes

    titled = _TITLED.fullmatch(text)
    kind_of_name = name.rpartition(":")[2]
    if name in _NUMBERED:
        number = (titled[2] if titled else text).partition("#")[0]
        shown = titled[1] if titled else f"{name.upper()} {number}"
        if number.isdecimal() and number.isascii():
            return [nodes.reference(raw, shown, refuri=_NUMBERED[name].format(number))], []
        return [nodes.inline(raw, shown)], []
    shown = titled[1] if titled else text.lstrip("!~." if kind_of_name in _NAMES else "!~")
    if kind_of_name == "doc":
        return [nodes.reference(raw, shown, refuri=titled[2] if titled else text)], []
    is_prose = kind_of_name in ("ref", "term", "abbr", "guilabel", "menuselection", "kbd", "numref")
    kind = nodes.inline if titled or is_prose else nodes.literal
    return [kind(raw, shown.replace("\x00", ""))], []


class _AnyOption(dict):  # type: ignore[type-arg]
    """Options of any name, which may have a value."""

    def __contains__(self, _: object) -> bool:
        return True

    def __getitem__(self, _: object) -> Any:
        return lambda value: value or ""

    def __bool__(self) -> bool:
        return True


@cache
def _directives() -> dict[str, Any]:
    """Return the directives that stand in for those that are not known."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Anything(Directive):  # type: ignore[misc]
        optional_arguments = 1000
        final_argument_whitespace = True
        has_content = True
        option_spec = _AnyOption()

        def run(self) -> list[Any]:
            made: list[Any] = []
            arguments = "" if self.name in _NO_ARGUMENT else " ".join(self.arguments)
            if arguments:
                arguments = _VERSIONS.get(self.name, "") + arguments
                inline, messages = self.state.inline_text(arguments, self.lineno)
                made = [nodes.paragraph(arguments, "", *inline), *messages]
            container = nodes.container()
            self.state.nested_parse(self.content, self.content_offset, container)
            return [*made, container]

    class Code(Anything):
        def run(self) -> list[Any]:
            code = "\n".join(self.content)
            return [nodes.literal_block(code, code, classes=["code", f"language-{' '.join(self.arguments)}"])]

    class Nothing(Anything):
        def run(self) -> list[Any]:
            return []

    return {"anything": Anything, "code": Code, "nothing": Nothing}
