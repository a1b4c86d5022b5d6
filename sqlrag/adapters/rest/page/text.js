/** Text with marks. Nothing here parses HTML: documents are untrusted, and what is shown of them by this is plain text. */

/** Create an element with properties and children; strings become text. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/**
 * Return the title of a document or passage: its last heading, its title, its file, its id.
 * The metadata field "title" may be anything, so only visible text counts.
 */
export function titleOf({ heading_path, metadata, file_name, file, doc_id, node_id }) {
  const names = [heading_path?.at(-1), metadata?.title, file_name, file, doc_id, node_id];
  return names.find((name) => typeof name === "string" && /[^\s\p{Cc}\p{Cf}]/u.test(name)) ?? "";
}

/** Return the titles of a result: that of its document and the last heading above it, where they are two. */
export function titlesOf(row) {
  const document_ = titleOf({ metadata: row.metadata, heading_path: [], file_name: row.heading_path[0] });
  const heading = titleOf({ heading_path: row.heading_path });
  const titles = [...new Set([document_, heading])].filter(Boolean);
  return titles.length ? titles : [titleOf(row)];
}

/** Return the nodes of text below another, in their order. */
export function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  return nodes;
}

/** Convert sorted spans of characters to spans of UTF-16 units, which index JavaScript strings. */
export function toUnits(text, spans) {
  if (!/[\ud800-\udfff]/.test(text)) return spans;
  let characters = 0;
  let units = 0;
  const unit = (wanted) => {
    while (characters < wanted && units < text.length) {
      units += text.codePointAt(units) > 0xffff ? 2 : 1;
      characters += 1;
    }
    return units;
  };
  return spans.map(([start, end]) => [unit(start), unit(end)]);
}

/** Return nodes of a text in which the spans, sorted and in UTF-16 units, are marks. */
export function marked(text, spans, from = 0, to = text.length) {
  const nodes = [];
  let done = from;
  for (const [start, end] of spans) {
    const [first, last] = [Math.max(start, done), Math.min(end, to)];
    if (first >= last) continue;
    nodes.push(text.slice(done, first), element("mark", { className: "term" }, text.slice(first, last)));
    done = last;
  }
  return [...nodes, text.slice(done, to)];
}

export const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
