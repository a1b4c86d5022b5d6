/**
 * Markdown as elements that do nothing: rendered by markdown-it, cleaned by DOMPurify (both in vendor/). No script, style, form, image or
 * element that loads something is left, no attribute by which a document could look like the page, and links lead to the web alone.
 */

import "./vendor/markdown-it.umd.min.js";
import "./vendor/purify.min.js";
import { element, marked, textNodes } from "./text.js";

const { DOMPurify, markdownit } = globalThis;
const PART = 4000; // characters, so that the browser lays out only visible parts
const FAR = 2000; // characters of markup between two words

const HARMLESS = ["align", "colspan", "data-from", "data-link", "dir", "lang", "open", "reversed", "rowspan", "start", "title"];
const CLEANED = {
  ALLOWED_TAGS: (
    "a abbr b bdi bdo blockquote br caption cite code dd del details dfn div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i ins kbd li " +
    "ol p pre q rp rt ruby s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var wbr"
  ).split(" "),
  ALLOWED_ATTR: ["href", ...HARMLESS],
  ADD_URI_SAFE_ATTR: HARMLESS,
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.localName === "a" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

const parser = markdownit({ html: true });
parser.renderer.rules.link_open = (tokens, at, options, { links }, renderer) => {
  const found = links?.get(tokens[at].attrGet("href"));
  if (found !== undefined) tokens[at].attrSet("data-link", `${found}`);
  return renderer.renderToken(tokens, at, options);
};
parser.renderer.rules.image = (tokens, at, options, env, renderer) =>
  parser.utils.escapeHtml(renderer.renderInlineAsText(tokens[at].children, options, env));
// DOMPurify removes them, too; but while it reads them, browsers write to the console what the policy of the page kept from running.
const ACTING = /<style\b[\s\S]*?<\/style>|\s(?:on\w+|style)\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+)/gi;
for (const kind of ["html_block", "html_inline"]) {
  parser.renderer.rules[kind] = (tokens, at) => tokens[at].content.replace(ACTING, "");
}
parser.core.ruler.push("places", ({ tokens, env: { lines } }) => {
  const levels = [];
  for (const token of tokens) {
    const align = /^text-align:(\w+)$/.exec(token.attrGet("style") ?? "");
    if (align) token.attrs = [["align", align[1]]]; // the page takes no styles from documents
    if (lines && token.map && token.nesting >= 0) token.attrSet("data-from", `${lines[token.map[0]]}`);
    if (token.type === "heading_open") {
      while (levels.at(-1) >= token.tag) levels.pop();
      levels.push(token.tag);
    }
    // Below the titles of the page, none left out.
    if (token.type.startsWith("heading_")) token.shown = `h${Math.min(6, 2 + levels.length)}`;
  }
  for (const token of tokens) token.tag = token.shown ?? token.tag;
});

const cleaned = (html, leads = []) => {
  const fragment = DOMPurify.sanitize(html, CLEANED);
  for (const link of fragment.querySelectorAll("[data-link]")) {
    const { node, href } = leads[link.dataset.link] ?? {};
    link.removeAttribute("data-link");
    if (link.localName !== "a" || node === undefined || link.hasAttribute("href")) continue;
    link.href = href;
    link.dataset.node = node;
  }
  for (const table of fragment.querySelectorAll("table")) {
    const wide = element("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: "Table" });
    table.replaceWith(wide);
    wide.append(table);
  }
  return fragment;
};

/** Return a text of Markdown as nodes. */
export function rendered(text) {
  return cleaned(parser.render(text, {}));
}

/**
 * Return a document of Markdown as elements, from an offset on. `passages` and `terms` are spans of the text in UTF-16 units: the words of the
 * passages are marked, and the terms in them. `leads` are the links to other documents, as `{url, node, href}`; links of other kinds lead to
 * the web alone.
 */
export function whole(text, start, passages, terms, leads = []) {
  const lines = [start, ...[...text.slice(start).matchAll(/\n/g)].map(({ index }) => start + index + 1), text.length];
  const env = { lines, links: new Map(leads.map(({ url }, at) => [parser.normalizeLink(url), at])) };
  const parts = [];
  let group = [];
  let from = start;
  for (const token of parser.parse(text.slice(start), env)) {
    group.push(token);
    if (token.level || token.nesting === 1) continue; // within a block
    const end = lines[group.findLast(({ level, map }) => map && !level).map[1]];
    if (end - from < PART) continue;
    parts.push([from, end, group]);
    [group, from] = [[], end];
  }
  parts.push([from, text.length, group]);
  // The destinations of links are no words that can be seen.
  const seen = text.replace(/(?<=\])\([^()\s]*\)/g, (found) => " ".repeat(found.length));
  return parts.map(([first, last, tokens]) => {
    const part = element("div", { className: "part rendered" }, cleaned(parser.renderer.render(tokens, parser.options, env), leads));
    const own = passages.map(([begin, end]) => [Math.max(begin, first), Math.min(end, last)]);
    if (own.some(([begin, end]) => begin < end)) mark(part, seen, first, own, terms);
    return part;
  });
}

/** Mark the words of a part: each is looked for in the text behind the one before it, from where its block begins. */
function mark(part, seen, first, passages, terms) {
  let [at, block] = [first, first];
  for (const node of textNodes(part)) {
    const own = Number(node.parentElement.closest("[data-from]")?.dataset.from ?? block);
    if (own > block) [at, block] = [own, own];
    const words = [];
    for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
      const found = seen.indexOf(word, at);
      if (found < 0 || found > at + FAR) continue;
      words.push([index, index + word.length, found]);
      at = found + word.length;
    }
    wrap(node, words, passages, terms);
  }
}

function wrap(node, words, passages, terms) {
  const pieces = [];
  let done = 0;
  for (const [number, [from, to]] of passages.entries()) {
    const inside = words.filter(([start, , place]) => start >= done && from <= place && place < to);
    if (!inside.length) continue;
    const [start, end] = [inside[0][0], inside.at(-1)[1]];
    const spans = inside.flatMap(([first, last, place]) =>
      terms
        .filter(([begin, stop]) => begin < place + last - first && place < stop)
        .map(([begin, stop]) => [first + Math.max(0, begin - place), Math.min(last, first + stop - place)]),
    );
    const made = element("mark", { className: "passage" }, ...marked(node.data, spans, start, end));
    made.dataset.number = number;
    pieces.push(node.data.slice(done, start), made);
    done = end;
  }
  if (done) node.replaceWith(...pieces, node.data.slice(done));
}
