/** The columns of a row of a table, as a table with one line. */

import { element } from "./text.js";

const LONG = 30;
const LONGEST = 200;
const NUMBER = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL\(\d+,\d+\))$/;
const TIME = /^(DATE|TIME|TIMESTAMP|INTERVAL)[^\[]*$/;

/** Return the types of columns by collection; `sources` as in the answer of `facets`. */
export const typesOf = (sources) =>
  new Map(sources.map(({ collection, columns }) => [collection, new Map(columns.map(({ name, type }) => [name, type]))]));

/** Return a table, or null without a row; `types` are those of the columns, as far as they are known. */
export function columns(row, types = new Map()) {
  if (!row) return null;
  const names = Object.keys(row);
  const of = (name, more = "") => ({ className: `${kind(types.get(name))} ${more}`.trim(), title: types.get(name) ?? "", dir: "auto" });
  const heads = names.map((name) => element("th", { ...of(name), scope: "col" }, name));
  const cells = names.map((name) => {
    const text = written(row[name]);
    return element("td", of(name, text.length > LONG ? "long" : ""), row[name] === null ? element("i", {}, text) : text);
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, element("tr", {}, ...cells)));
  return element("div", { className: "row", tabIndex: 0, role: "group", ariaLabel: "Columns of the row" }, table);
}

const kind = (type) => (NUMBER.test(type) ? "number" : TIME.test(type) ? "time" : "");

function written(value) {
  if (value === null) return "NULL";
  const isList = Array.isArray(value) && value.every((one) => one === null || typeof one !== "object");
  const text = isList ? value.map(written).join(", ") : typeof value === "object" ? JSON.stringify(value) : `${value}`;
  return text.length > LONGEST ? `${text.slice(0, LONGEST).replace(/[\ud800-\udbff]$/, "")}…` : text;
}
