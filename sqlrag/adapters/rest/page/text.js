/** Text with marks. Nothing here parses HTML: documents are untrusted and shown as plain text. */

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

/** Choose about `size` units of a text with most of the marks; return their start and end. */
export function excerpt(text, spans, size) {
  const begin = text.search(/\S/);
  if (text.length - begin <= size * 1.25) return [Math.max(0, begin), text.length];
  let [best, most] = [Math.max(0, begin), 0];
  for (const [first] of spans) {
    const start = first < begin + size / 2 ? begin : first - size / 6;
    const marks = spans.filter(([from, to]) => from >= start && to <= start + size).length;
    if (marks > most) [best, most] = [start, marks];
  }
  const start = best <= begin ? best : border(text, Math.floor(best), spans[0][0]);
  return [start, border(text, Math.min(text.length, start + size), text.length)];
}

/** Return the next blank within some characters, else the place itself; never inside a surrogate pair. */
function border(text, place, limit) {
  if (place >= text.length) return text.length;
  const near = text.slice(place, Math.min(place + 24, Math.max(place, limit))).search(/\s/);
  if (near >= 0) return place + near;
  return /[\udc00-\udfff]/.test(text[place]) ? place - 1 : place;
}

export const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
