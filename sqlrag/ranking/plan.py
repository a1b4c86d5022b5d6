"""The options of a search, each once: its name, type, default, range and sentence.

:class:`SearchOptions` is the table. Signatures, checks, the command line, REST, MCP and the adapters are made of it.
The ``TypedDict`` classes below say which search takes which options, for type checkers and at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, get_args, get_type_hints

from sqlrag.arguments import Range, choice, flag, items, refuse_unknown_names, shown, text, weights, whole
from sqlrag.errors import InputError
from sqlrag.types import (
    DEFAULT_ALPHA,
    DEFAULT_CONTEXT_CHARS,
    DEFAULT_FEEDBACK_WEIGHT,
    Around,
    Fusion,
    RetrievePlan,
)

if TYPE_CHECKING:
    from sqlrag.ranking.filters import Filters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
else:
    ArrayLike = Sequence[float] | Sequence[Sequence[float]]  # numpy is not needed to say so

F = TypeVar("F", bound=Callable[..., Any])

Mode = Literal["hybrid", "vector", "lexical"]

DEFAULT_POOL = 50

# Candidates of a leg where some of them are left out because of their document.
_DEEPER_POOL = 200

# The first five of adaptive fusion are the same whatever top_k is, up to this number.
ADAPTIVE_POOL = 100

DEFAULT_HEADING_WEIGHT = 3.0

MOST_CONTEXT_CHARS = 100_000  # beyond, include_source_docs is meant

HEADING_WEIGHT = Range(ge=0, le=1000)

FIELDS = ("text", "heading_path")

# The names under which options are published as well.
ALIASES = {"fts_top_k": "lexical_top_k"}


class Said(NamedTuple):
    """The texts of an option: ``sentence`` in schemas and documentation, ``brief`` in the help of a command."""

    sentence: str
    brief: str = ""


class OfFusion(NamedTuple):
    """The one fusion that looks at an option, and what :func:`sqlrag.fuse` calls it."""

    fusion: str
    parameter: str


class BM25(NamedTuple):
    """The parameters of BM25 as the search macros take them; a field that is not searched has the weight 0."""

    k1: float = 1.2
    b: float = 0.75
    text_weight: float = 1.0
    heading_weight: float = DEFAULT_HEADING_WEIGHT

    def parameters(self) -> dict[str, float]:
        """Return them by name."""
        return self._asdict()


@dataclass(frozen=True)
class SearchOptions:
    """Everything that decides a result but the question: the table of the options, and those of one search.

    ``mode`` is which legs run; feedback and expansion need both. ``stored_heading_weight`` is that of the file.
    """

    mode: Annotated[
        Mode,
        Said(
            "Which search: that of :func:`hybrid_query`, :func:`vector_query` or :func:`lexical_query`.",
            "Search by meaning, by words, or by both.",
        ),
    ] = "hybrid"
    top_k: Annotated[int, Range(ge=1), Said("How many results, 1 or more.", "How many results.")] = 5
    per_document: Annotated[
        int,
        Range(ge=0),
        Said(
            "At most so many chunks of a document, the best of them; 0: as many as there are. ``.further`` of the "
            "results names the others. Each leg then gives 200 candidates unless told otherwise.",
            "At most so many chunks of a document; 0: all.",
        ),
    ] = 0
    context: Annotated[
        Around,
        Said(
            'What to read around each result, in its ``context``: ``"chunk"``: nothing more (default); '
            '``"neighbours"``: what stands before and after it; ``"section"``: that, but only of the section that it '
            "is in, with the sections below.",
            "Show more around each result.",
        ),
    ] = "chunk"
    context_chars: Annotated[
        int,
        Range(ge=1, le=MOST_CONTEXT_CHARS),
        Said(
            "The most characters of a ``context``, 1 to 100,000. It holds the chunk whole, however long that is, and "
            "begins and ends with a chunk or a sentence.",
            "The most characters of that.",
        ),
    ] = DEFAULT_CONTEXT_CHARS
    fusion: Annotated[
        Fusion,
        Said(
            '``"adaptive"`` (default): ``.75 * trust * (cos + 1) / (max cos + 1) + .5 * gap * bm25 / max bm25``, both '
            "found for each question. ``trust`` is ``min(1, rho / .3)`` and at least .01, rho being the correlation of "
            "cosine and BM25 over a sample of the chunks that hold one of its words, whatever the filters; 1 for fewer "
            "than 30 of them. ``gap`` is ``(best - tenth) / best`` of the BM25 scores, at least .05, and 1 for fewer "
            "than ten. The first of the vector leg is among the first five with a trust of .5 or more, that of the "
            'lexical leg with a gap of .25 or more. ``"rrf"``: reciprocal rank fusion. '
            '``"weighted"``: each leg\'s candidates scaled to 0..1. '
            '``"convex"``: ``alpha * (cos + 1) / (max cos + 1) + (1 - alpha) * bm25 / max bm25`` over all candidates.',
            "How both rankings become one.",
        ),
    ] = "adaptive"
    alpha: Annotated[
        float,
        Range(ge=0, le=1),
        OfFusion("convex", "alpha"),
        Said("Of ``convex`` fusion: the share of the vector score, 0..1.", "convex: share of the vector score."),
    ] = DEFAULT_ALPHA
    vector_weight: Annotated[
        float,
        Range(ge=0, le=1),
        OfFusion("weighted", "vector_weight"),
        Said("Of ``weighted`` fusion: the share of the vector leg, 0..1.", "weighted: share of the vector leg."),
    ] = 0.5
    rrf_k: Annotated[
        float,
        Range(ge=0),
        OfFusion("rrf", "rrf_k"),
        Said("Of ``rrf``: its constant, 0 or more.", "rrf: its constant."),
    ] = 60
    rrf_weights: Annotated[
        tuple[float, float],
        Range(ge=0),
        OfFusion("rrf", "weights"),
        Said("Of ``rrf``: the weights of the vector and the lexical leg, 0 or more, not both 0."),
    ] = (1.0, 1.0)
    vector_top_k: Annotated[
        int | None,
        Range(ge=0),
        Said(
            "Candidates of the vector leg: 50 unless given, 100 with ``adaptive`` fusion, never fewer than ``top_k``; "
            "0 leaves the leg out.",
            "Candidates of the vector leg; 0: none. [50; adaptive: 100]",
        ),
    ] = None
    lexical_top_k: Annotated[
        int | None,
        Range(ge=0),
        Said(
            "Candidates of the lexical leg: 50 unless given, 100 with ``adaptive`` fusion, never fewer than ``top_k``; "
            "0 leaves the leg out.",
            "Candidates of the lexical leg; 0: none. [50; adaptive: 100]",
        ),
    ] = None
    collection: Annotated[
        str | Sequence[str] | None,
        Said("Filter, applied in both legs before they rank: one or more collections.", "Only this collection."),
    ] = None
    tags_any: Annotated[
        Sequence[str] | None, Said("Filter: at least one of the tags.", "With at least one of these tags.")
    ] = None
    tags_all: Annotated[Sequence[str] | None, Said("Filter: all of the tags.", "With all of these tags.")] = None
    metadata: Annotated[
        Mapping[str, Any] | None,
        Said(
            'Filter: top-level metadata fields that equal these values or meet operators, ``{"year": {"$gte": 2020}}``:'
            " ``$eq $ne $gt $gte $lt $lte``, ``$in $nin`` (one of a list or not), ``$contains $any $all`` (of a list "
            "field: it holds the value, one of a list, all of it), ``$text_match $text_match_insensitive`` (a part of "
            "the text), ``$exists $empty``. ``$and``, ``$or`` (lists of such filters) and ``$not`` combine them; "
            "``$doc_id`` and ``$node_id`` stand for the chunk's own.",
            "A metadata field equals this value (JSON such as 2024 or true; else text), or meets operators, such as "
            "'year={\"$gte\": 2020}'.",
        ),
    ] = None
    k1: Annotated[
        float,
        Range(ge=0, le=1000),
        Said("Of BM25: the saturation of repeated words, 0 to 1000.", "BM25: saturation of repeated words."),
    ] = 1.2
    b: Annotated[
        float,
        Range(ge=0, le=1),
        Said("Of BM25: the length normalisation, 0..1.", "BM25: length normalisation, 0 to 1."),
    ] = 0.75
    heading_weight: Annotated[
        float | None,
        HEADING_WEIGHT,
        Said(
            "Of BM25: the weight of the heading path beside the text, 0 to 1000; the file's own unless given.",
            "BM25: weight of the headings beside the text. [the file's own]",
        ),
    ] = None
    fields: Annotated[
        str | Sequence[str] | None,
        Said(
            'Where the words are looked for: "text", "heading_path" or both (the default).',
            "Look for the words in this field only.",
        ),
    ] = None
    query_vector: Annotated[
        ArrayLike | None,
        Said("``[dimensions]``: the question's vector, where you have it already. Brought to unit length."),
    ] = field(default=None, compare=False)
    exact: Annotated[
        bool,
        Said(
            "Compare the question with every vector instead of with the best candidates by sign code.",
            "Compare with every vector, without the preselection by sign codes.",
        ),
    ] = False
    codes_pool: Annotated[
        int | None,
        Range(ge=1),
        Said(
            "How many candidates the sign codes hand to the exact cosines, 1 or more; None: as many as the size of the "
            "file asks for."
        ),
    ] = None
    min_similarity: Annotated[
        float | None,
        Range(ge=-1, le=1, unit="cosine"),
        Said(
            "Drop candidates of the vector leg whose cosine is lower, -1..1.",
            "Drop candidates of the vector leg below this cosine.",
        ),
    ] = None
    feedback: Annotated[
        int,
        Range(ge=0, le=DEFAULT_POOL),
        Said(
            "Search twice: the vectors of so many of the best chunks, say 2, are taken for relevant and pull the "
            "question's vector towards their mean. Then ``vector_score`` is the cosine to the moved vector.",
            "Search twice: so many of the best chunks pull the question's vector.",
        ),
    ] = 0
    feedback_weight: Annotated[
        float,
        Range(ge=0, le=1),
        Said("The share of those chunks in the question's vector, 0..1.", "Their share in it, 0 to 1."),
    ] = DEFAULT_FEEDBACK_WEIGHT
    expansion: Annotated[
        int,
        Range(ge=0, le=1000),
        Said(
            "Search twice: so many terms, say 10, that tell the 10 best chunks from others are added to the question's "
            "words.",
            "Search twice: so many terms of the best chunks are added to the words.",
        ),
    ] = 0
    syntax: Annotated[
        bool,
        Said(
            "Words in double quotes have to follow each other, as they are written but for case and accents; ``vect*`` "
            "stands for every word that begins so, weighed as one word that stands in all of their chunks. Anything "
            "else is plain words, as everything is with False.",
            "Quotes mean phrases, a star the beginning of a word.",
        ),
    ] = False
    conjunctive: Annotated[bool, Said("Only chunks that hold every word.", "Only chunks that hold every word.")] = False
    include_source_docs: Annotated[
        bool,
        Said(
            "Put the whole source document into each result's ``source_doc``.",
            "Put the whole source document into each result.",
        ),
    ] = False
    model_name: Annotated[
        str | None,
        Said(
            "Only to make sure: the model is taken from the file, and another one is refused.",
            "Only to make sure: refuse a file of another model.",
        ),
    ] = None
    strict: Annotated[
        bool,
        Said(
            "Raise where one leg cannot answer, instead of answering from the other with a notice.",
            "Fail where one leg cannot answer.",
        ),
    ] = False
    stored_heading_weight: float = DEFAULT_HEADING_WEIGHT

    def __post_init__(self) -> None:
        for option in OPTIONS.values():
            value = getattr(self, option.name)
            if option.check is not None and value is not option.default:
                object.__setattr__(self, option.name, option.check(option.name, value))
            elif isinstance(value, Iterator):  # which can be read once only
                object.__setattr__(self, option.name, list(value))
        _ = self.bm25  # which checks the fields

    @classmethod
    def of(cls, function: str, taken: type, given: Mapping[str, Any], **others: Any) -> SearchOptions:
        """Return the options that ``function`` was called with, whose names are those of the class ``taken``.

        Raises
        ------
        TypeError
            It takes no such option.
        InputError
            A value is of the wrong type or out of its range, or an option was given twice, with two values.
        """
        refuse_unknown(function, taken, given)
        found = {**_OTHER_DEFAULTS.get(function, {}), **canonical(given), **others}
        options = cls(**found)
        off = [leg for leg in ("vector", "lexical") if getattr(options, f"{leg}_top_k") == 0]
        if options.mode == "hybrid" and off:
            vars(options)["mode"] = "lexical" if off[0] == "vector" else "vector"
            unused = [name for name in ("feedback", "expansion") if getattr(options, name)]
            if off[1:] or unused:
                what = " and ".join(unused or ["A hybrid search"])
                raise InputError(f"{what} needs both legs, or one: {' and '.join(f'{leg}_top_k=0' for leg in off)}.")
        if options.mode != "hybrid":  # one leg is searched once, and has no candidates but the results
            most = max(options.top_k, _DEEPER_POOL) if options.per_document else options.top_k
            alone = {"vector_top_k": most, "lexical_top_k": most, "feedback": 0, "expansion": 0}
            vars(options).update(alone)
        return options

    @classmethod
    def of_plan(cls, plan: RetrievePlan, **others: Any) -> SearchOptions:
        """Return the options of a search for what a program asks of :func:`sqlrag.retrieve`."""
        if not isinstance(plan, RetrievePlan):
            raise InputError(f"plan must be a sqlrag.RetrievePlan, not {shown(plan)}.")
        given = {**vars(plan), "top_k": whole("k", plan.k, 1)}
        pool = max(whole("candidate_pool", given.pop("candidate_pool"), 1), given.pop("k"))
        for name in ("tags_any", "tags_all", "metadata"):
            if isinstance(given[name], (tuple, list, Mapping)) and not given[name]:
                del given[name]  # an empty condition of a plan is none
        return cls(**given, vector_top_k=pool, lexical_top_k=pool, **others)

    @cached_property
    def bm25(self) -> BM25:
        """The parameters of BM25: the weights are those of the fields that are searched."""
        return _bm25(self)

    @cached_property
    def filters(self) -> Filters:
        """The conditions that a chunk has to meet."""
        from sqlrag.ranking.filters import Filters

        return Filters(self.collection, self.tags_any, self.tags_all, self.metadata)

    @property
    def vector_candidates(self) -> int:
        """How many candidates the vector leg gives."""
        return max(self.top_k, self.vector_top_k or self._pool)

    @property
    def lexical_candidates(self) -> int:
        """How many candidates the lexical leg gives."""
        return max(self.top_k, self.lexical_top_k or self._pool)

    @property
    def _pool(self) -> int:
        if self.per_document:
            return _DEEPER_POOL
        return ADAPTIVE_POOL if self.fusion == "adaptive" else DEFAULT_POOL

    def fusion_parameters(self) -> dict[str, Any]:
        """Return the options that the chosen fusion looks at, by the names that :func:`sqlrag.fuse` has for them."""
        return {of.parameter: getattr(self, name) for name, of in OF_FUSION.items() if of.fusion == self.fusion}

    def without_effect(self) -> list[str]:
        """Return a remark for each option that was given another value than its default and changes nothing."""
        if self.mode == "lexical":
            unused = []
        else:
            unused = [
                (name, f"with fusion={self.fusion!r}, only with {of.fusion!r}")
                for name, of in OF_FUSION.items()
                if of.fusion != self.fusion
            ]
            unused += [] if self.feedback else [("feedback_weight", "without feedback")]
            unused += [("codes_pool", "with exact=True")] if self.exact else []
        if self.context == "chunk":
            unused.append(("context_chars", 'with context="chunk"'))
        if self.heading_weight and not self.bm25.heading_weight:
            unused.append(("heading_weight", "where the headings are not searched"))
        given = [(name, getattr(self, name), why) for name, why in unused]
        return [
            f"{name}={value!r} has no effect {why}." for name, value, why in given if value != OPTIONS[name].default
        ]


def _bm25(options: SearchOptions) -> BM25:
    valid = ", ".join(FIELDS)
    given = options.fields
    names = FIELDS if given is None else [given] if isinstance(given, str) else items("fields", given, valid)
    for name in names:
        if not isinstance(name, str) or name not in FIELDS:
            raise InputError(f"fields={shown(given)}: there is no field {shown(name)}. Valid names: {valid}.")
    if not names:
        raise InputError(f"fields={shown(given)} is empty. Name one or more of {valid}.")
    weight = options.stored_heading_weight if options.heading_weight is None else options.heading_weight
    heading = weight or (0.0 if "text" in names else 1.0)  # alone, its weight is only a unit
    by_field = (float("text" in names), float(heading) if "heading_path" in names else 0.0)
    return BM25(float(options.k1), float(options.b), *by_field)


class Option(NamedTuple):
    """An option of the table; ``kind`` is its type, ``check`` returns a valid value or raises InputError."""

    name: str
    kind: Any
    default: Any
    range: Range | None
    fusion: OfFusion | None
    sentence: str
    brief: str
    check: Callable[[str, object], Any] | None


def checker(kind: Any, span: Range) -> Callable[[str, object], Any] | None:
    """Return the check of a type with a range; None where what uses the value checks it."""
    given = get_args(kind)
    simple: dict[Any, Callable[[str, object], Any]] = {bool: flag, int: span.whole, float: span.number, str: text}
    if kind in simple:
        return simple[kind]
    if type(None) in given:
        check = checker(given[0], span) if len(given) == 2 else None
        return None if check is None else lambda name, value: None if value is None else check(name, value)
    if kind == tuple[float, float]:
        return partial(weights, count=2)
    return partial(choice, valid=given) if all(isinstance(one, str) for one in given) and given else None


def _table() -> dict[str, Option]:
    hints = get_type_hints(SearchOptions, include_extras=True)
    table = {}
    for one in fields(SearchOptions):
        kind, *marks = get_args(hints[one.name]) or (None,)
        marked = {type(mark): mark for mark in marks}
        if Said in marked:
            span = marked.get(Range)
            check = checker(kind, span or Range())
            said, fusion = marked[Said], marked.get(OfFusion)
            table[one.name] = Option(one.name, kind, one.default, span, fusion, said.sentence, said.brief, check)
    return table


OPTIONS = _table()

"""The table, in its order."""

OF_FUSION = {name: option.fusion for name, option in OPTIONS.items() if option.fusion}


class _Filters(TypedDict, total=False):
    collection: str | Sequence[str] | None
    tags_any: Sequence[str] | None
    tags_all: Sequence[str] | None
    metadata: Mapping[str, Any] | None


class OfResults(TypedDict, total=False):
    """The options of what is made of the ranking, which no explanation of it has."""

    per_document: int
    context: Around
    context_chars: int
    include_source_docs: bool


class _OfWords(TypedDict, total=False):
    k1: float
    b: float
    heading_weight: float | None
    fields: str | Sequence[str] | None


class _OfVectors(TypedDict, total=False):
    query_vector: ArrayLike | None
    exact: bool
    min_similarity: float | None


class _OfBoth(TypedDict, total=False):
    fusion: Fusion
    alpha: float
    vector_weight: float
    rrf_k: float
    rrf_weights: tuple[float, float]
    vector_top_k: int | None
    lexical_top_k: int | None
    fts_top_k: int | None
    feedback: int
    feedback_weight: float
    expansion: int
    strict: bool


class VectorOptions(_Filters, _OfVectors, OfResults, total=False):
    """What :func:`sqlrag.vector_query` takes beside its own arguments."""


class LexicalOptions(_Filters, _OfWords, OfResults, total=False):
    """What :func:`sqlrag.lexical_query` takes beside its own arguments."""

    conjunctive: bool
    syntax: bool


class ExplainOptions(_OfBoth, _Filters, _OfWords, _OfVectors, total=False):
    """What :func:`sqlrag.explain` takes: the options of every search."""

    mode: Literal["hybrid", "vector", "lexical"]
    top_k: int
    model_name: str | None
    syntax: bool | None
    conjunctive: bool


class StoreVectorOptions(VectorOptions, total=False):
    """What the method ``vector_query`` of a store takes."""

    top_k: int
    model_name: str | None
    codes_pool: int | None


class StoreLexicalOptions(LexicalOptions, total=False):
    """What the method ``lexical_query`` of a store takes."""

    top_k: int


class StoreHybridOptions(_OfBoth, _Filters, _OfWords, _OfVectors, OfResults, total=False):
    """What the method ``hybrid_query`` of a store takes."""

    top_k: int
    model_name: str | None
    codes_pool: int | None
    syntax: bool


class StoreExplainOptions(ExplainOptions, total=False):
    """What the method ``explain`` of a store takes."""

    codes_pool: int | None


# Where a search does something else by itself than the table says.
_OTHER_DEFAULTS: dict[str, dict[str, Any]] = {"lexical_query": {"syntax": True}, "explain": {"syntax": None}}


def takes(taken: Any) -> Callable[[F], F]:
    """Show the options of ``taken`` by name in the signature of a function that has them as ``**options``.

    Of a function that writes them out, it only says that they are those of the table; see :func:`option_of`.
    """

    def mark(function: F) -> F:
        function.takes = taken  # type: ignore[attr-defined]
        own = inspect.signature(function)
        others = _OTHER_DEFAULTS.get(function.__name__, {})
        parameters = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        if len(parameters) == len(own.parameters):
            return function
        for name, hint in taken.__annotations__.items():
            default = others.get(name, OPTIONS[ALIASES.get(name, name)].default)
            annotation = getattr(hint, "__forward_arg__", hint)
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return mark


def option_of(function: Callable[..., Any], name: str) -> Option | None:
    """Return the option that a parameter of a search is; None for its other parameters, and for other functions."""
    own = ALIASES.get(name, name)
    taken = getattr(function, "takes", None)
    if taken is None or own not in OPTIONS:
        return None
    said = f"The same as ``{own}``."
    return OPTIONS[own] if own == name else OPTIONS[own]._replace(name=name, sentence=said, brief=said)


def refuse_unknown(function: str, taken: Any, given: Mapping[str, Any]) -> None:
    """Raise TypeError for a name that is no option of ``taken``, as Python does for a parameter."""
    refuse_unknown_names(function, sorted({*taken.__optional_keys__, "top_k"}), given)


def canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under the names of the table.

    Raises
    ------
    InputError
        An option was given under both of its names, with two values.
    """
    named = dict(given)
    for alias, name in ALIASES.items():
        value = named.pop(alias, None)
        check = OPTIONS[name].check
        if value is None or check is None:
            continue
        value, other = check(alias, value), named.get(name)
        other = None if other is None else check(name, other)
        if other is not None and other != value:
            raise InputError(f"{alias}={value!r} and {name}={other!r} are the same option. Pass one of them.")
        named[name] = value
    return named
