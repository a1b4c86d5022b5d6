"""Files that are ZIP archives of XML: Office documents and books. Nothing is unpacked before its size is checked."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.text import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_UNPACKED = 512 * 2**20

MAX_PART = 128 * 2**20

MAX_TREE = 64 * 2**20  # XML that is held as a whole, which takes ten times as much memory

_MAX_MEMBERS = 20_000

_MAX_RATIO = 200  # XML is packed to a tenth, a sheet of zeros to a hundredth

_SMALL = 16 * 2**20  # what may be packed at any ratio

MAX_TEXT = 100_000_000

"""Characters of one document: a string that is stored once may be shown in a million cells."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_ENTITIES = tuple("<!ENTITY".encode(name) for name in ("ascii", "utf-16-le", "utf-16-be"))

_CORE = {"title": "title", "creator": "author", "description": "description", "keywords": "keywords"}

# What programs write where nobody has given a title, an author or a description.
_OF_A_PROGRAM = re.compile(
    r"generated (?:by|using) python-\w+|python-(?:docx|pptx)|openpyxl|apache poi|unknown creator|microsoft office user|"
    r"(?:microsoft )?(?:word|excel|powerpoint)\b(?: (?:- .*|document|presentation|workbook))?|untitled\W*\d*|title|"
    r"(?:slide|document|presentation|book|pr[äe]sentation|pr[ée]sentation)(?:\W*(?:title|titel|titre|name))?\W*\d*",
    re.IGNORECASE,
)


class Package:
    """An archive whose members are read by their path.

    Parameters
    ----------
    data
        The bytes of the file.
    doc_id
        Named in the errors.
    what
        What it should be, as "a Word document".

    Raises
    ------
    DocumentError
        It is something else, asks for a password, or would become too large.
    """

    def __init__(self, data: bytes, doc_id: str, what: str) -> None:
        self.doc_id = doc_id
        self.what = what
        if data.startswith(_OLE):
            if "EncryptedPackage".encode("utf-16-le") in data:
                raise DocumentError(doc_id, "encrypted: it needs a password; save a copy without one")
            raise DocumentError(
                doc_id, f"the content is not {what}: it is of an older Office; save it in today's format"
            )
        if not data.startswith(b"PK"):
            raise DocumentError(doc_id, f"the content is not {what}: it is {kind_of(data) or 'something else'}")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            members = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
            raise DocumentError(doc_id, f"not {what}: the archive is damaged ({error})") from error
        unpacked = sum(member.file_size for member in members)
        if len(members) > _MAX_MEMBERS:
            raise DocumentError(doc_id, f"the archive has {len(members):,} members; the limit is {_MAX_MEMBERS:,}")
        if unpacked > MAX_UNPACKED or unpacked > max(_SMALL, _MAX_RATIO * len(data)):
            raise DocumentError(
                doc_id,
                f"too large: {len(data):,} bytes unpack to {unpacked:,}; the limits are {MAX_UNPACKED:,} and "
                f"{_MAX_RATIO} times the file",
            )
        self.names = {member.filename for member in members}

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return a member.

        Raises
        ------
        DocumentError
            It is absent, damaged, encrypted, or larger than ``most`` bytes, ``MAX_PART`` if None.
        """
        most = MAX_PART if most is None else most
        try:
            size = self._zip.getinfo(name).file_size
            if size > most:
                raise DocumentError(self.doc_id, f"too large: {name} has {size:,} bytes; the limit is {most:,}")
            return self._zip.read(name)
        except KeyError as error:
            raise DocumentError(self.doc_id, f"not {self.what}: it has no part {name}") from error
        except RuntimeError as error:
            raise DocumentError(self.doc_id, "encrypted: it needs a password; save a copy without one") from error
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError) as error:
            raise DocumentError(self.doc_id, f"not {self.what}: its part {name} is damaged ({error})") from error

    def xml(self, name: str) -> ET.Element:
        """Return the XML of a member.

        Raises
        ------
        DocumentError
            As :meth:`read`, and where it is not XML or declares entities.
        """
        with self.reasons():
            return ET.fromstring(self.checked(name, MAX_TREE))  # noqa: S314 - without entities of its own

    def checked(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of an XML member that declares no entities, which can grow without bound."""
        data = self.read(name, most)
        if any(sign in data for sign in _ENTITIES):
            raise DocumentError(self.doc_id, f"its part {name} declares XML entities, which are not expanded here")
        return data

    def optional(self, name: str) -> ET.Element | None:
        """Return the XML of a member, None where there is none."""
        return self.xml(name) if name in self.names else None

    def relations(self, name: str) -> dict[str, str]:
        """Return what a member refers to: the path within the archive, or the address, by id."""
        folder, base = posixpath.split(name)
        root = self.optional(posixpath.join(folder, "_rels", f"{base}.rels"))
        found = {}
        for relation in root if root is not None else ():
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External":
                target = resolved(name, target)
            found[relation.get("Id", "")] = target
        return found

    def related(self, name: str, kind: str) -> str | None:
        """Return the path of the first member of a kind, such as "styles", that a member refers to."""
        folder, base = posixpath.split(name)
        root = self.optional(posixpath.join(folder, "_rels", f"{base}.rels"))
        for relation in root if root is not None else ():
            target = resolved(name, relation.get("Target", ""))
            if relation.get("Type", "").endswith(f"/{kind}") and target in self.names:
                return target
        return None

    def main_part(self) -> str:
        """Return the path of an Office document's main part; one with macros is refused."""
        name = self.related("", "officeDocument")
        if name is None:
            raise DocumentError(self.doc_id, f"not {self.what}: it has no main part")
        if any(member.endswith("vbaProject.bin") for member in self.names):
            raise DocumentError(self.doc_id, "it holds macros, and such files are not read; save a copy without them")
        return name

    def properties(self) -> dict[str, str]:
        """Return title, author, description, keywords and date of an Office document, as far as it has them."""
        root = self.optional("docProps/core.xml")
        found: dict[str, str] = {}
        for element in root if root is not None else ():
            name = _CORE.get(local(element.tag))
            if name and element.text and element.text.strip():
                found.setdefault(name, element.text)
            elif local(element.tag) == "created" and element.text:
                found["date"] = element.text.strip()[:10]
        return {name: text for name, text in found.items() if not _OF_A_PROGRAM.fullmatch(text.strip())}

    @contextmanager
    def reasons(self) -> Iterator[None]:
        """Turn what a wrong part raises into a DocumentError."""
        try:
            yield
        except RecursionError as error:
            raise DocumentError(self.doc_id, f"not {self.what}: its XML is nested too deeply") from error
        except (ET.ParseError, ValueError, LookupError) as error:
            reason = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
            raise DocumentError(
                self.doc_id, f"not a readable file, though it should be {self.what} ({reason})"
            ) from error


def resolved(base: str, target: str) -> str:
    """Return the path of a target that is relative to the member ``base``; absolute ones begin with "/"."""
    path = unquote(target.partition("#")[0])
    return posixpath.normpath(posixpath.join("/", posixpath.dirname(base), path)).lstrip("/")


def local(tag: object) -> str:
    """Return the name of an element without its namespace, of which the strict variant has others."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: ET.Element, name: str) -> str:
    """Return an attribute by its name without its namespace; "" if there is none."""
    for key, value in element.attrib.items():
        if key == name or key.endswith("}" + name):
            return value
    return ""


def child(element: ET.Element | None, *path: str) -> ET.Element | None:
    """Return the first descendant at a path of local names."""
    for name in path:
        element = next((one for one in element if local(one.tag) == name), None) if element is not None else None
    return element
