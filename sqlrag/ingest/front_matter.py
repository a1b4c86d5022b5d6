"""Split YAML front matter from a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlrag.normalizing import clean_metadata, normalize

RAW_KEY = "front_matter"
MAX_FRONT_MATTER = 65_536
MAX_ALIASES = 10

_FRONT_MATTER = re.compile(r"---\n(.*?)^(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class FrontMatter:
    """What front matter said. ``body_start`` is the offset after it, 0 where there is none."""

    body_start: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def split_front_matter(text: str, doc_id: str) -> FrontMatter:
    """Read the front matter of a normalised text.

    There is front matter only where line 1 is exactly ``---`` and a later line is exactly ``---`` or ``...``. Between
    them stands a YAML mapping. YAML that cannot be used stays as it was written under the key ``front_matter``, with
    a warning that names the line. A block that YAML reads as plain prose was set between two rules: it is body text.
    Tags are read from ``tags`` and ``tag`` (a list, or a string with commas), as they were written: ``1.10`` stays
    ``1.10``.

    Parameters
    ----------
    text : str
        As :func:`sqlrag.normalizing.normalize` returns it.
    doc_id : str
        Named in the warnings.

    Returns
    -------
    FrontMatter
        Its metadata went through :func:`sqlrag.normalizing.clean_metadata`.
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        return FrontMatter()
    raw = match.group(1)
    if len(raw) > MAX_FRONT_MATTER:
        remark = f"{doc_id}, line 1: front matter of more than {MAX_FRONT_MATTER:,} characters is read as body text"
        return FrontMatter(warnings=(remark,))
    try:
        loaded, written = _load(raw)
        if isinstance(loaded, str):
            remark = f"{doc_id}, line 1: the text between the --- lines is no front matter and is read as body text"
            return FrontMatter(warnings=(remark,))
        if loaded is not None and not isinstance(loaded, Mapping):
            raise ValueError(f"a {type(loaded).__name__} where names with values are expected")
        metadata = clean_metadata(loaded or {})
    # PyYAML raises its own errors, ValueError, RecursionError and others on odd input: each is a remark, not a stop.
    except Exception as error:
        remark = f"{doc_id}, line {_line_of(error)}: front matter is not usable YAML ({_problem_of(error)})"
        return FrontMatter(match.end(), {RAW_KEY: raw}, (), (f"{remark}; kept as text under '{RAW_KEY}'",))
    return FrontMatter(match.end(), metadata, _tags(metadata, written))


def _load(raw: str) -> tuple[Any, Any]:
    """Return the values, and the same with every scalar as the string that was written."""
    import yaml

    def load(base: Any) -> Any:
        aliases = 0

        class Loader(base):  # type: ignore[misc]
            """Aliases of aliases (and merge keys) unfold to gigabytes: a handful is enough for front matter."""

            def compose_node(self, parent: Any, index: Any) -> Any:
                nonlocal aliases
                aliases += self.check_event(yaml.AliasEvent)
                if aliases > MAX_ALIASES:
                    raise ValueError(f"more than {MAX_ALIASES} aliases")
                return super().compose_node(parent, index)

        return yaml.load(raw, Loader)  # noqa: S506 - both bases build plain values only

    return load(yaml.SafeLoader), load(yaml.BaseLoader)


def _line_of(error: Exception) -> int:
    """Return the 1-based line of the file where YAML stumbled: its line 0 is line 2 of the file."""
    mark = getattr(error, "problem_mark", None)
    return mark.line + 2 if mark is not None else 1


def _problem_of(error: Exception) -> str:
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return " ".join(str(problem).split())


def _tags(metadata: Mapping[str, Any], written: Any) -> tuple[str, ...]:
    """Return the tags in order, without repeats."""
    found: list[str] = []
    for key, value in written.items() if isinstance(written, Mapping) else ():
        if not isinstance(key, str) or key.lower() not in {"tags", "tag"} or metadata.get(key) is None:
            continue
        parts = value.split(",") if isinstance(value, str) else value
        found += [part for part in parts if isinstance(part, str)]
    return tuple(dict.fromkeys(tag for part in found if (tag := normalize(part).strip())))
