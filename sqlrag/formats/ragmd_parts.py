"""The parts of a ``.ragmd`` file, line by line: front matter and fenced sections."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from mmap import mmap

CHUNKS, DOCUMENTS, VECTORS = "Chunks", "Document Metadata", "Vectors"
_LANGUAGES = {CHUNKS: b"json", DOCUMENTS: b"json", VECTORS: b"base64"}
_OTHER_NAMES = {"Vectors (Base64)": VECTORS}
_BOM = b"\xef\xbb\xbf"
_MARK = b"---"
_MAX_FRONT_MATTER = 1 << 20

# What YAML cannot hold as it is, or takes for the end of a line; JSON writes all else in a way that YAML reads.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


class Parts(NamedTuple):
    """Front matter as a mapping, as lines, and the text between the fences of each section."""

    header: dict[str, Any]
    header_lines: list[bytes]
    sections: dict[str, memoryview]


def split_parts(data: bytes | mmap, where: str) -> Parts:
    """Take a file apart.

    Raises
    ------
    FormatError
        There is no front matter, or a section is missing, there twice, or without its fences.
    """
    lines, place = _front_matter(data, where)
    header = _parse_yaml(b"".join(lines), where)
    return Parts(header, lines, _sections(data, place, where))


def front_matter_line(name: str, value: object) -> str:
    """Return a line of front matter: texts are quoted, so that YAML takes them for nothing else."""
    if not isinstance(value, str):
        return f"{name}: {json.dumps(value)}\n"
    quoted = _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    return f"{name}: {quoted}\n"


def has_front_matter(beginning: bytes) -> bool:
    """Return whether the beginning of a file is that of a ``.ragmd`` file."""
    lines = [line.rstrip() for line in beginning.removeprefix(_BOM).split(b"\n")]
    if lines[0] != _MARK:
        return False
    block = lines[1 : lines.index(_MARK, 1)] if _MARK in lines[1:] else lines[1:]
    return all(any(line.startswith(name) for line in block) for name in (b"format_version:", b"embedding_dim:"))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table of one line a row, whatever the cells hold."""
    names = list(header)
    lines = [names, ["-" * max(3, len(name)) for name in names], *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    cell = text[:400]
    if not cell.isprintable():
        cell = "".join(char if char.isprintable() else " " for char in cell)
    cell = " ".join(cell.split())
    return (cell if len(cell) <= 120 else cell[:119] + "…").replace("\\", "\\\\").replace("|", "\\|")


def _front_matter(data: bytes | mmap, where: str) -> tuple[list[bytes], int]:
    """Return the lines between the marks, and where the rest begins."""
    place = len(_BOM) if data[: len(_BOM)] == _BOM else 0
    lines: list[bytes] = []
    while place < len(data):
        end = data.find(b"\n", place, place + _MAX_FRONT_MATTER)
        line = data[place:] if end < 0 else data[place:end]
        if not lines and line.rstrip() != _MARK:
            break
        place = len(data) if end < 0 else end + 1
        if lines and line.rstrip() == _MARK:
            return lines[1:], place
        lines.append(line.rstrip(b"\r") + b"\n")
        if place > _MAX_FRONT_MATTER:
            break
    raise FormatError(
        f"{where}: Missing frontmatter: a .ragmd file begins with a line ---, some settings, and another line ---. "
        "It is cut short, or of another format."
    )


def _parse_yaml(text: bytes, where: str) -> dict[str, Any]:
    """Return plain values only: no tag of YAML makes an object."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Aliases of aliases unfold to gigabytes, and no setting needs one."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it has an alias (*), which no setting needs")
            return super().compose_node(parent, index)

    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            header = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    # PyYAML raises its own errors, KeyError and others on odd input.
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 2}"
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise FormatError(f"{where}{line}: the front matter is no YAML that can be used: {problem:.200}.") from error
    if not isinstance(header, dict) or not isinstance(node, yaml.MappingNode):
        raise FormatError(f"{where}: Missing frontmatter: no names with values stand between the lines ---.")
    names = [str(key.value) for key, _ in node.value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FormatError(f"{where}: {twice} is in the front matter more than once. Remove one of them.")
    return header


def _sections(data: bytes | mmap, place: int, where: str) -> dict[str, memoryview]:
    """Return the text between the fences of the sections that are read."""
    sections: dict[str, memoryview] = {}
    view = memoryview(data)
    current = ""
    while place < len(data):
        end = data.find(b"\n", place)
        end = len(data) if end < 0 else end
        line = data[place:end].rstrip()
        if line.startswith(b"## "):
            name = line[3:].strip().decode("utf-8", "replace")
            current = _OTHER_NAMES.get(name, name)
            if current in sections:
                raise FormatError(f"{_at(data, place, where)}: a second section ## {name}. Remove one of them.")
        elif line.startswith(b"```"):
            close, after = _closing_fence(data, end, line, where)
            if current in _LANGUAGES:
                if current in sections or line.strip(b"`").strip().lower() != _LANGUAGES[current]:
                    raise FormatError(
                        f"{_at(data, place, where)}: section ## {current} must hold one block, which begins with "
                        f"```{_LANGUAGES[current].decode()}, not {line.decode('utf-8', 'replace')!r:.40}."
                    )
                sections[current] = view[end + 1 : close]
            end = after
        place = end + 1
    missing = next((name for name in _LANGUAGES if name not in sections), None)
    if missing is not None:
        raise FormatError(
            f"{where}: section ## {missing} with its ```{_LANGUAGES[missing].decode()} block is missing. The file is "
            "cut short; export it again."
        )
    return sections


def _closing_fence(data: bytes | mmap, end: int, opening: bytes, where: str) -> tuple[int, int]:
    """Return where the text of a block ends, whose opening line ends at ``end``, and where its closing line does."""
    fence = opening[: len(opening) - len(opening.lstrip(b"`"))]
    # Base64 has no backtick, and a single character is found much faster.
    close = max(end, data.find(b"`", end) - 1) if opening.endswith(b"base64") else end
    while (close := data.find(b"\n" + fence, close)) >= 0:
        after = data.find(b"\n", close + 1)
        after = len(data) if after < 0 else after
        if not data[close + 1 : after].rstrip().strip(b"`"):
            return close, after
        close += 1
    raise FormatError(
        f"{_at(data, end, where)}: the block that begins here has no end. The file is cut short; export it again."
    )


def _at(data: bytes | mmap, place: int, where: str) -> str:
    line = data[:place].count(b"\n") + 1
    return f"{where}, line {line}"


def hashed_lines(header_lines: Iterable[bytes], left_out: str) -> bytes:
    """Return the lines of front matter but one."""
    return b"".join(line for line in header_lines if not line.startswith(f"{left_out}:".encode()))


def header_texts(header: Mapping[str, object]) -> list[str]:
    """Return the lines of front matter of a header."""
    return [front_matter_line(name, value) for name, value in header.items()]
