"""Small Office files and books, written part by part."""

import io
import zipfile
from xml.sax.saxutils import escape

_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_NAMES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" '
)


def packed(parts):
    """Return a ZIP archive of texts or bytes by their path."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def part(name, content):
    """Return an element with all names of Office."""
    return f'<?xml version="1.0" encoding="UTF-8"?><{name} {_NAMES}>{content}</{name.split()[0]}>'


def relations(**found):
    """Return a part of relations: the kind and the target by id; an address is external."""
    rows = "".join(
        f'<Relationship Id="{key}" Type="{_TYPES}/{kind}" Target="{target}"'
        f"{' TargetMode=' + chr(34) + 'External' + chr(34) if '://' in target else ''}/>"
        for key, (kind, target) in found.items()
    )
    return f"<Relationships>{rows}</Relationships>"


def properties(title="", author=""):
    return part("cp:coreProperties xmlns:cp='x'", f"<dc:title>{title}</dc:title><dc:creator>{author}</dc:creator>")


def word(body, **others):
    """Return a Word document with this body; further parts by their name in ``word/``."""
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{style_id}"><w:name w:val="{name}"/>{more}</w:style>'
        for style_id, name, more in (
            ("T", "Title", ""),
            ("H1", "heading 1", ""),
            ("H2", "heading 2", ""),
            ("Own", "Own", '<w:basedOn w:val="H2"/>'),
            ("Code", "Source Code", ""),
        )
    )
    numbering = (
        '<w:abstractNum w:abstractNumId="5"><w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/></w:lvl>'
        '<w:lvl w:ilvl="1"><w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="5"/></w:num>'
    )
    parts = {
        "_rels/.rels": relations(a=("officeDocument", "word/document.xml")),
        "word/document.xml": part("w:document", f"<w:body>{body}</w:body>"),
        "word/styles.xml": part("w:styles", styles),
        "word/numbering.xml": part("w:numbering", numbering),
        "word/_rels/document.xml.rels": relations(
            s=("styles", "styles.xml"),
            n=("numbering", "/word/numbering.xml"),
            f=("footnotes", "footnotes.xml"),
            link=("hyperlink", "https://example.org/a"),
        ),
    }
    return packed({**parts, **{name.replace("__", "/"): content for name, content in others.items()}})


def p(text, style="", more=""):
    """Return a paragraph of Word; ``text`` may be XML."""
    run = text if text.startswith("<") else f"<w:r><w:t>{escape(text)}</w:t></w:r>"
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{more}</w:pPr>{run}</w:p>"


def item(text, level=0):
    return p(text, more=f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>')


def word_table(*rows):
    made = "".join(
        "<w:tr>" + "".join(cell if cell.startswith("<") else f"<w:tc>{p(cell)}</w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )
    return f"<w:tbl>{made}</w:tbl>"


def shape(*paragraphs, place=""):
    """Return a shape of a slide; an item of a list is a text or (level, text)."""
    made = "".join(
        f'<a:p><a:pPr lvl="{one[0]}"/><a:r><a:t>{escape(one[1])}</a:t></a:r></a:p>'
        for one in ((0, text) if isinstance(text, str) else text for text in paragraphs)
    )
    kind = f"<p:ph {place}/>" if place else ""
    return f"<p:sp><p:nvSpPr><p:nvPr>{kind}</p:nvPr></p:nvSpPr><p:txBody>{made}</p:txBody></p:sp>"


def slides(*trees, hidden=(), notes=(), parts=None, title=""):
    """Return a presentation of slides by their shapes; ``notes`` by number, from 1."""
    numbers = range(1, len(trees) + 1)
    made = {
        "_rels/.rels": relations(a=("officeDocument", "ppt/presentation.xml")),
        "docProps/core.xml": properties(title, "Ann"),
        "ppt/presentation.xml": part(
            "p:presentation",
            "<p:sldIdLst>" + "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in numbers) + "</p:sldIdLst>",
        ),
        # The files need not be in the order of the slides.
        "ppt/_rels/presentation.xml.rels": relations(
            **{f"r{n}": ("slide", f"slides/slide{len(trees) - n}.xml") for n in numbers}
        ),
    }
    for n, tree in zip(numbers, trees, strict=True):
        name = f"slide{len(trees) - n}.xml"
        show = ' show="0"' if n in hidden else ""
        made[f"ppt/slides/{name}"] = part(f"p:sld{show}", f"<p:cSld><p:spTree>{tree}</p:spTree></p:cSld>")
        found = {"c": ("chart", "../charts/chart1.xml")}
        if n in dict(notes):
            found["n"] = ("notesSlide", f"../notesSlides/{name}")
            tree = shape(dict(notes)[n], place='type="body"') + shape("9", place='type="sldNum"')
            made[f"ppt/notesSlides/{name}"] = part("p:notes", f"<p:cSld><p:spTree>{tree}</p:spTree></p:cSld>")
        made[f"ppt/slides/_rels/{name}.rels"] = relations(**found)
    return packed({**made, **(parts or {})})


def workbook(*sheets, strings=(), formats=("General",), hidden=(), more="", title=""):
    """Return a workbook: sheets as (name, rows in XML)."""
    numbers = range(1, len(sheets) + 1)
    states = ['state="hidden"' if n in hidden else "" for n in numbers]
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" {state} r:id="r{n}"/>'
        for n, (name, _), state in zip(numbers, sheets, states, strict=True)
    )
    codes = "".join(f'<numFmt numFmtId="{200 + i}" formatCode="{code}"/>' for i, code in enumerate(formats))
    styles = "".join(f'<xf numFmtId="{200 + i}"/>' for i in range(len(formats)))
    return packed(
        {
            "_rels/.rels": relations(a=("officeDocument", "xl/workbook.xml")),
            "docProps/core.xml": properties(title),
            "xl/workbook.xml": part("workbook", f"{more}<sheets>{listed}</sheets>"),
            "xl/_rels/workbook.xml.rels": relations(
                **{f"r{n}": ("worksheet", f"worksheets/sheet{n}.xml") for n in numbers},
                s=("styles", "styles.xml"),
                t=("sharedStrings", "sharedStrings.xml"),
            ),
            "xl/styles.xml": part("styleSheet", f"<numFmts>{codes}</numFmts><cellXfs>{styles}</cellXfs>"),
            "xl/sharedStrings.xml": part("sst", "".join(f"<si>{text}</si>" for text in strings)),
            **{
                f"xl/worksheets/sheet{n}.xml": part("worksheet", f"<sheetData>{rows}</sheetData>")
                for n, (_, rows) in zip(numbers, sheets, strict=True)
            },
        }
    )


def row(number, **cells):
    """Return a row of numbers, (type, value) or (style, number) by column."""
    made = ""
    for column, value in cells.items():
        if not isinstance(value, tuple):
            made += f'<c r="{column}{number}"><v>{value}</v></c>'
        elif isinstance(value[0], int):
            made += f'<c r="{column}{number}" s="{value[0]}"><v>{value[1]}</v></c>'
        elif value[0] == "inlineStr":
            made += f'<c r="{column}{number}" t="inlineStr"><is><t>{escape(value[1])}</t></is></c>'
        else:
            made += f'<c r="{column}{number}" t="{value[0]}"><v>{value[1]}</v></c>'
    return f'<row r="{number}">{made}</row>'


def book(*chapters, extra=None, toc=""):
    """Return a book with a title; chapters are HTML."""
    numbers = range(1, len(chapters) + 1)
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers)
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<dc:title>The Pump</dc:title><dc:creator>Ann</dc:creator><dc:creator>Bo</dc:creator></metadata><manifest>"
        f'<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>{items}</manifest>'
        f"<spine>{''.join(f'<itemref idref={chr(34)}c{n}{chr(34)}/>' for n in numbers)}</spine></package>"
    )
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": "<x><rootfiles><rootfile full-path='OEBPS/b.opf'/></rootfiles></x>",
            "OEBPS/b.opf": opf,
            "OEBPS/toc.ncx": f"<ncx><navMap>{toc}</navMap></ncx>",
            **{f"OEBPS/text/c {n}.xhtml": chapter for n, chapter in zip(numbers, chapters, strict=True)},
            **(extra or {}),
        }
    )
