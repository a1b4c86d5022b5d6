"""The text of a Markdown document as a reader of its page sees it."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlrag import links
from sqlrag.visible import PAD, shown_text, visible

PIECES = [
    *"ab &;<>/=\"'`*_~[](){}!#|-:%\\\né",
    "<!--",
    "-->",
    "<div>",
    "</b>",
    "[[",
    "{%",
    "- ",
    "\n\n",
    "|-|-|",
    "&lt;",
]

ODD = st.lists(
    st.sampled_from([*PIECES, "```", "</style>", "<style>", "[r]: b", "\n!!! a\n    ", "\n: a\n    ", "\n<A>\n"])
).map("".join)


def seen(text, body_start=0):
    shown = shown_text(text, body_start)
    assert len(shown) == len(text)
    return " ".join(visible(shown).split())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('<div class="highlight"><span class="nv">alpha</span> <span class="kt">beta</span></div>', "alpha beta"),
        ("<table><tr><td>one</td><td>two</td></tr></table>", "one two"),
        ("H<sub>2</sub>O, <b\n class='x'>bold</b>", "H2O, bold"),
        ('<img src="a.png" alt="A pump" title="The pump">', "A pump The pump"),
        (
            '<a href="x?a=1&b=2">link</a> AT&T &lt;b&gt; caf&eacute;s a&nbsp;b &nothing;',
            "link AT&T <b> cafés a b &nothing;",
        ),
        ("a <!-- b\nc --> d", "a d"),
        ("<!-- a\n\nb -->\n\nc", "c"),
        ("<div>\n<!-- a\n\nb -->\nc</div>", "c"),
        ("<style>\n.a {}\n\n.b {}\n</style>\n\nc <script>var d;</script> e", "c e"),
        ("<div>\n<STYLE>\n.a {}\n\n.b {}\n</STYLE>\nc</div>", "c"),
        ("<?php x ?> a <!DOCTYPE html>", "a"),
        ('<h2>a <a class="h" href="#a" title="Link">&para;</a> <a href="b" title="c">d</a></h2>', "a ¶ c d"),
    ],
    ids=lambda value: value[:12],
)
def test_html_gives_its_words(written, read):
    assert seen(written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('<Tabs groupId="os"><TabItem value="x" label="y">in a tab</TabItem></Tabs>', "in a tab"),
        ("<Foo/> <my-element>a</my-element> <Bar b={{c: \"d>\"}} title='e' {...f}>g</Bar>", "a e g"),
        (
            "import A from '@a/b';\nimport {\nC,\n} from 'd'\n\nexport const e = {\nf: 1\n};\n\ng {h} {/* j */} {'k'}",
            "g k",
        ),
        ("import A from '@a/b'; import B from \"c\"; import 'd'\n\ng", "g"),
        (
            '<div>\n**a** [b](c.md) ![d](e.png "f")\n:::\n<code>**g** [h](i)</code> **j**\n</div>',
            "a b d f **g** [h](i) j",
        ),
        ("{% for x in y %}\n[#{{ x }}]: {{ site.z }}/{{ x }}\n{% endfor %}\n\n[a][] [b][2]\n\n[2]: {{ c }}/d", "a b"),
        ("{% raw %}\n{{ a }}\n{% endraw %}\n\n{% comment %}\nb\n{% endcomment %}\n\n{% if c %}\n- d", "{{ a }} - d"),
        ("The set {a, b}, no MDX", "The set {a, b}, no MDX"),
        ("import numpy from the shell", "import numpy from the shell"),
        ("{% include a.html %}[CLI]({% link b/c.md %}) {{ site.d }} `{{ e }}`", "CLI {{ e }}"),
        ("a {% comment %} b {% endcomment %} c", "a c"),
        ("a {% raw %}{{ b }} {% c %}{% endraw %} {{ d }} {% raw %} e", "a {{ b }} {% c %} e"),
        ("(label)=\n# A\n\n:::{note}\n{ref}`b` f(x)=1\n:::", "A b f(x)=1"),
        ('a\n{: .b #c }\n\n[d](e){:target="f"}\n\n{:toc}', "a d"),
        (":::note A title\n\nbody\n\n:::", "A title body"),
        ("<Note>\n**a** [b](c.md)\n</Note>\n\n<Deep a={1}>\n#### d\n\ne\n</Deep>", "a b d e"),
        ("a\n\n{{< img\n  src='b.png'\n  c=true\n>}}\n\nd {{< e >}}f{{< /e >}}", "a d f"),
        ('<p title="in {{ a }}">{{ b }} c {{< d >}}</p>', "in c"),
        ('<iframe class="a"src="b" sandbox="c"></iframe> d', "d"),
    ],
    ids=lambda value: value[:12],
)
def test_components_and_templates_give_their_words(written, read):
    assert seen(written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            '!!! warning "A *title*"\n\n    See [a](b.md) <!-- c -->\n\n    ``` yaml\n    d: *e\n    ```\n\nf',
            "A title See a d: *e f",
        ),
        ('??? note\n    a **b**\n\n    - c\n        === "d"\n            `e`', "note a b - c d e"),
        ('=== ":octicons-file-code-16: `x.yml`"\n\n    > a\n\n=== "y"\n\n        code **b**', "x.yml a y code **b**"),
        ("a[^1]\n\n[^1]: b *c*\n\n    d **e**\n\nT\n:   f\n\n    [g](h)\n", "a b c d e T : f g"),
        ("a b ^block-1\n\n^37066d\n\nc ^2 `d ^abc`", "a b c ^2 d ^abc"),
        ('a {{< figure src="b" caption="c d" alt=\'e\' >}} f\n\n{{% note title="g" %}}h{{% /note %}}', "a c d e f g h"),
        ("a %%b *c*%% d 5%% e%% `%%f%%`", "a d 5%% e%% %%f%%"),
        ('Yes!!! indeed\n\n!!! no content\n\nx === "y"', 'Yes!!! indeed !!! no content x === "y"'),
        (":material-check:{ .lg } a :smile: `:material-x:`", "a :smile: :material-x:"),
        ('[a](b){ .md-button } ![c](d){ align=left } http{job="x"} {1, 2}', 'a c http{job="x"} {1, 2}'),
        ("[a *b*][c.d] [e][] f[i][j] [0][1] [`g`][h.i]", "a b e f[i][j] [0][1] g"),
    ],
    ids=lambda value: value[:12],
)
def test_marks_of_mkdocs_are_no_words(written, read):
    assert seen(written) == read


@pytest.mark.parametrize(
    "anchor",
    ["{#a}", "{: #a .b}", "{/*a*/}", "[#a]", "{#概要}", '{ id="1.0" }', "{ #a .b }", "{ data-search-exclude }"],
)
def test_anchors_of_headings_are_no_words(anchor):
    assert seen(f"## Title {anchor}\n\ntext") == "Title text"
    assert seen(f"## Title {anchor} ##\n\ntext [#1]").startswith("Title")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("# A\n\nB\n=\n\nC\n---\n\n## D ##\n\n---\n\n> > ### e", "A B C D e"),
        ("a **bold**ly *b* __c__ ~~d~~ snake_case_name e\\*f", "a boldly b c d snake_case_name e*f"),
        ("[a](b.md \"c\") [d][e] [e] [f] <https://g.h>\n\n[e]: i.md 'j'", "a c d e [f] https://g.h j"),
        ('[![a](b.png)](c.md) ![d *e*](f.png "g") ![](h.png)', "a d *e* g"),
        ("a[^1] b\n\n[^1]: word\n\n[^2]: two words", "a b word two words"),
        ("| a | b |\n|---|:-:|\n| `c` | **d** |\n| e | f \\| g |", "| a | b | | c | d | | e | f | g |"),
        ("text\n| a | b |\n|---|---|\n| 1* | 2* |", "text | a | b | | 1* | 2* |"),
        ("> a\n> b\n\n- c\n  1. d", "a b - c 1. d"),
        ("> a\n>\n> - b\n>\n>> c\n>>\n> d", "a - b c d"),
        ("a[^1][^2]\n\n[^1]: b\n[^2]: c", "a b c"),
        ("> [!NOTE]\n> a", "NOTE a"),
        ("__a__{ title='b' } *c*{.d} __{{ e }}__", "a c"),
        ("a[^1]:\n\n- b[^1]:\n\n[^1]: c", "a: - b: c"),
        ("[[TOC]]\n\n[toc]\n\na [toc]\n\n<small>\n:octicons-a-16: **b**\n</small>", "a [toc] b"),
        ("==a b== c==d e == f == `==g==` x=**=**= a == b", "a b c==d e == f == ==g== x=== a == b"),
        ("[[note]] [[a/b.md#C|d]] ![[e.png|100]] [[f#g]] [[#h]] [[i\\|j]]", "note d f h j"),
        ("a![[b.svg#icon]]c ![[d.png|An e]] ![[f.md]] ![g](h.png)i [[j.png]]", "a c An e f g i j.png"),
    ],
    ids=lambda value: value[:12],
)
def test_marks_of_markdown_are_no_words(written, read):
    assert seen(written) == read


@pytest.mark.parametrize(
    "code",
    ["std::vector<int>", "a_b_c", "List<T>", "<div class='a'>", "{{ a }}", "{% b %}", "&amp;", "[x](y)", "**c**"],
)
def test_code_stays_code(code):
    assert seen(f"a `{code}` b") == f"a {code} b"
    assert seen(f"```html\n{code}\n```") == code
    assert seen(f"a\n\n    {code}") == f"a {code}"
    assert seen(f"> ~~~\n> {code}\n> ~~~") == code
    assert seen(f'- ```x title="File name"\n  {code}\n  ```') == f"- File name {code}"


def test_what_only_looks_like_a_tag_keeps_its_words():
    text = "List<String> std::vector<int> Map<K, V> clone <repo> if a<b and c>d, 1 < 2 <T>"
    assert seen(text.replace("a<b and", "a < b and")) == text.replace("a<b and", "a < b and")
    assert seen("<T>a</T> <repo>") == "a <repo>"


@pytest.mark.parametrize(
    "opening", ["<!--", "<style>", "<script>", "<div", "<pre", "```", "{%", "{{", "[[", "![", "<![CDATA["]
)
def test_what_is_not_closed_hides_no_text(opening):
    for text in (f"{opening} kept\n\nwords", f"a {opening} kept words", f"<div>\n{opening} kept\n\nwords"):
        if opening == "```" and text.startswith("```"):
            continue  # the rest of the line names the language
        assert {"kept", "words"} <= set(seen(text).split()), text


def test_every_character_keeps_its_place():
    text = "# T\n\n\t<b>one</b>\n\n> *two* &amp; `three`\n"
    shown = shown_text(text)
    for word in ("T", "one", "two", "three"):
        assert shown.index(word) == text.index(word)
    assert shown[text.index("&")] == "&"
    assert shown[text.index("&") + 1 : text.index("&") + 5] == PAD * 4


def test_front_matter_and_plain_text_are_as_they_are():
    assert shown_text("no markup, at all.") == "no markup, at all."
    assert shown_text("---\na: <b>\n---\n# c", 13) == f"---\na: <b>\n---{PAD[:0]}" + shown_text("\n# c")


@settings(deadline=None, max_examples=50)
@given(ODD)
def test_any_text_keeps_its_length_and_its_lines_of_letters(text):
    shown = shown_text(text)
    assert len(shown) == len(text)
    assert all(a == b or a in f" {PAD}" or text[i] == "&" for i, (a, b) in enumerate(zip(shown, text, strict=True)))


@settings(deadline=None, max_examples=50)
@given(ODD)
def test_a_long_document_is_parsed_in_parts(text):
    whole = "# A\n\n[r]: b.md\n\n" + text + "\n\n<!-- c\n\n-->\n\n[r]\n\n```\n- d\n\n```\n"
    with pytest.MonkeyPatch.context() as patch:
        expected = shown_text(whole), links.markdown_links(whole)
        patch.setattr(links, "_WINDOW", 16)
        assert (shown_text(whole), links.markdown_links(whole)) == expected


@pytest.mark.parametrize("text", ["- a *b*\n" * 50, "> a\n>\n" * 50, "> 1. a\n\n" * 50, "- a\n\n  b\n" * 50])
def test_a_long_list_or_quote_is_parsed_in_parts_too(text, monkeypatch):
    expected = shown_text(text)
    monkeypatch.setattr(links, "_WINDOW", 64)
    assert len(list(links.blocks_of(text))) > 4
    assert shown_text(text + "\n") == expected + "\n"


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "<",
            "[",
            "{",
            "![",
            "[[",
            "<!--",
            "<a b={",
            '<a b="',
            "<a b='",
            "{{",
            "{%",
            "*",
            "_",
            "`",
            "&",
            "<script>",
            "|-",
        ),
        *("[a](b) ", "**a** ", "<b>a</b> ", "[^1] ", "a `b` ", "<!-- a --> ", "> ", "[[a|b]] ", "~~", "\\", "]("),
        *("!!! a\n    b\n\n", ": a\n\n    b\n", "[^1]: a\n\n    b\n", "[a][b] ", "%%", "{{< a\n", "<A>\n", ">\n"),
        *("](", "]: {{a b}}", "[a]({% link b %})\n", "==a ", "<b>\n**a [b](", "{% a %}\n", "import 'a'; "),
    ],
)
def test_fault_T17_the_work_is_linear(piece):
    """Calls are counted; tests/bench/linear.py measures time."""

    def calls(characters):
        count = 0

        def counted(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        text = piece * (characters // len(piece))
        sys.setprofile(counted)
        try:
            shown_text(text)
            links.markdown_links(text + "\n[a]: b\n")
        finally:
            sys.setprofile(None)
        return count

    calls(1_000)
    # Quadratic work would take 16 times as many.
    assert calls(4_000) < 6 * calls(1_000)
