/** The words of a question in texts, and the part of a text that holds most of them. Places are in characters, not in units of UTF-16. */

// As the index has them; camelCase and snake_case are marked as a whole.
const WORD = /[A-Za-z](?:\+\+|#)|\.[Nn][Ee][Tt]\b|[\p{L}\p{M}\p{N}_]+/gu;
const COLUMNS = 280;
const BEGINNING = /(?<=\n)|(?<=[.!?]\s)|(?<=[。！？])/g;

/** Return the words of texts that count, as `{start, end, term, weight}`; `weigh(words)` gives a Map of those that do. */
export function marks(texts, weigh) {
  const found = texts.map((text) => [...text.matchAll(WORD)]);
  const weights = weigh([...new Set(found.flat().map(([word]) => word))]);
  return texts.map((text, place) => {
    const characters = counter(text);
    return found[place].filter(([word]) => weights.has(word)).map(({ 0: word, index }) => ({ start: characters(index), end: characters(index + word.length), ...weights.get(word) }));
  });
}

/** Return a function that gives the number of characters before a unit; its arguments may not decrease. */
function counter(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (unit) => unit;
  let [unit, characters] = [0, 0];
  return (wanted) => {
    while (unit < wanted) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      characters += 1;
    }
    return characters;
  };
}

/** Return the cells of a row of a table, "" of the rule below its header, and any other line as it is. */
function cells(line) {
  const [, row] = /^\|(.+)\|$/.exec(line) ?? [];
  if (row === undefined) return line;
  const found = row.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  return found.every((cell) => /^:?-+:?$/.test(cell)) ? "" : found.filter(Boolean).join(" · ");
}

const bare = (text) => text.replace(/[\s`*_#~\\]+/g, " ").trim();

export const part = {
  /** Return the text of a chunk without blank lines and the headings that are shown above it. */
  body({ text, heading_path: titles }) {
    const lines = text.split("\n").map((line) => line.replace(/[\s\p{Cc}]+/gu, " ").trim()).map(cells).filter(Boolean);
    const first = lines.findIndex((line) => !titles.some((title) => bare(title) === bare(line)));
    return lines.slice(Math.max(first, 0)).join("\n");
  },

  /** Return 280 characters at most, those that hold most of the weight of the words, each counted once; of several such parts the first. */
  best(text, words) {
    const characters = [...text];
    if (characters.length <= COLUMNS) return text;
    let [best, start] = [0, 0];
    for (const word of [{ start: 0 }, ...words]) {
      const held = new Map(words.filter(({ start: from, end }) => from >= word.start && end <= word.start + COLUMNS).map(({ term, weight }) => [term, weight]));
      const total = [...held.values()].reduce((sum, weight) => sum + weight, 0);
      if (total > best) [best, start] = [total, word.start];
    }
    const before = characters.slice(0, start).join("");
    const borders = [...`${before} `.matchAll(BEGINNING)].map(({ index }) => [...before.slice(0, index)].length);
    const near = borders.filter((border) => border >= start - COLUMNS / 3 && border <= start).at(-1);
    const begin = start ? (near ?? start) : 0;
    const end = Math.min(characters.length, begin + COLUMNS);
    const cut = characters.slice(begin, end).join("");
    return `${begin ? "…" : ""}${end < characters.length ? `${cut.replace(/\s\S*$/, "")}…` : cut}`;
  },
};
