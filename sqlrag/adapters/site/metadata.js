/** Whether metadata meet a filter, as `metadata_matches` of the file has it: a browser's DuckDB has no json functions. */

import { Problem } from "./rpc.js";

const TIME = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d+))?(Z|([+-])(\d\d):?(\d\d)?)?$/;

const DATE = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?$/;
const PART_OF_DATE = /^\d{4}(-\d\d(-\d\d([T ].*)?)?)?$/;

/** Return a text of its own for each moment, in UTC, and other texts as they are; see `json_value_key`. */
function moment(text) {
  let [whole, day, minute, seconds = "", fraction = "", , sign, hours, minutes] = TIME.exec(text) ?? [];
  if (whole === undefined || (fraction && !seconds)) return text;
  if (sign) {
    const local = new Date(`${day}T${minute}Z`);
    if (Number.isNaN(local.getTime()) || local.toISOString().slice(0, 16) !== `${day}T${minute}`) return text; // no such day
    const shifted = new Date(local.getTime() - Number(`${sign}1`) * (60 * Number(hours) + Number(minutes ?? 0)) * 60_000);
    [day, minute] = shifted.toISOString().slice(0, 16).split("T");
  }
  fraction = fraction.replace(/0+$/, "");
  const time = `${minute}${seconds || ":00"}${fraction && `.${fraction}`}`;
  return time === "00:00:00" ? day : `${day}T${time}`;
}

/** Return a text that is the same for equal values; a field that is missing is null. */
const key = (value) => JSON.stringify(typeof value === "string" ? moment(value) : (value ?? null));

const has = (list, value) => list.some((one) => key(one) === key(value));
const elements = (value) => (Array.isArray(value) ? value : []);
const lower = (text) => Array.from(text, (one) => (one === "İ" ? "i" : one.toLowerCase())).join("");

/** Compare two numbers, or two texts by code points; NaN of others. */
function order(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== "string" || typeof b !== "string") return NaN;
  if ([a, b].some((text) => DATE.test(text)) && ![a, b].every((text) => PART_OF_DATE.test(text) || !/[\p{L}\p{N}]/u.test(text))) return NaN;
  const [one, other] = [a, b].map((text) => Array.from(moment(text), (character) => character.codePointAt(0)));
  const place = one.findIndex((code, at) => code !== other[at]);
  return place < 0 ? one.length - other.length : one[place] - (other[place] ?? -1);
}

const OPERATORS = {
  $eq: (value, wanted) => key(value) === key(wanted),
  $ne: (value, wanted) => key(value) !== key(wanted),
  $in: (value, wanted) => [value, ...elements(value)].some((one) => has(wanted, one)),
  $nin: (value, wanted) => !OPERATORS.$in(value, wanted),
  $contains: (value, wanted) => has(elements(value), wanted),
  $any: (value, wanted) => elements(value).some((one) => has(wanted, one)),
  $all: (value, wanted) => wanted.every((one) => has(elements(value), one)),
  $gt: (value, wanted) => order(value, wanted) > 0,
  $gte: (value, wanted) => order(value, wanted) >= 0,
  $lt: (value, wanted) => order(value, wanted) < 0,
  $lte: (value, wanted) => order(value, wanted) <= 0,
  $text_match: (value, wanted) => typeof value === "string" && value.includes(wanted),
  $text_match_insensitive: (value, wanted) => typeof value === "string" && lower(value).includes(lower(wanted)),
  $exists: (value, wanted) => (value !== undefined && value !== null) === wanted,
  $empty: (value, wanted) => ["null", '""', "[]"].includes(key(value)) === wanted,
  $not: (value, wanted) => !holds(value, wanted),
};

const OPERANDS = { $in: "array", $nin: "array", $any: "array", $all: "array", $text_match: "string", $text_match_insensitive: "string", $exists: "boolean", $empty: "boolean", $not: "object" };

const typeOf = (value) => (Array.isArray(value) ? "array" : value === null ? "null" : typeof value);

function refuse(why) {
  throw new Problem(422, "The filter by metadata cannot be used", why);
}

/** Whether a value meets a condition: a value to be equal to, or an object of operators. */
function holds(value, wanted) {
  if (typeOf(wanted) !== "object" || !Object.keys(wanted).some((sign) => sign.startsWith("$"))) return OPERATORS.$eq(value, wanted);
  return Object.entries(wanted).every(([sign, operand]) => {
    if (!Object.hasOwn(OPERATORS, sign)) refuse(`There is no operator ${sign}. They are ${Object.keys(OPERATORS).join(", ")}.`);
    if (sign in OPERANDS && typeOf(operand) !== OPERANDS[sign]) refuse(`The operand of ${sign} is of the type ${OPERANDS[sign]}.`);
    return OPERATORS[sign](value, operand);
  });
}

/** Refuse to order text that is no date beside a field whose texts are all dates, as Python does. */
export function checkDates(chunks, wanted) {
  for (const [name, one] of Object.entries(typeOf(wanted) === "object" ? wanted : {})) {
    if (name === "$and" || name === "$or") for (const part of elements(one)) checkDates(chunks, part);
    else if (name === "$not") checkDates(chunks, one);
    else if (typeOf(one) === "object") {
      if (one.$not) checkDates(chunks, { [name]: one.$not });
      const odd = ["$gt", "$gte", "$lt", "$lte"].find((sign) => typeof one[sign] === "string" && !PART_OF_DATE.test(one[sign]) && /[\p{L}\p{N}]/u.test(one[sign]));
      const texts = odd ? chunks.map(({ metadata }) => metadata[name]).filter((value) => typeof value === "string") : [];
      if (texts.length && texts.every((text) => DATE.test(text))) refuse(`${odd} of ${name} compares with dates such as "${texts.sort()[0]}". Write "${one[odd]}" like that, by year, month and day.`);
    }
  }
}

/** Whether the `metadata` of a chunk, and its ids, meet a filter. */
export function matches(chunk, wanted) {
  if (typeOf(wanted) !== "object") refuse('A filter is an object, such as {"year": {"$gte": 2024}}.');
  return Object.entries(wanted).every(([name, one]) => {
    if (name === "$not") return !matches(chunk, one);
    if (name === "$and" || name === "$or") return elements(one)[name === "$and" ? "every" : "some"]((part) => matches(chunk, part));
    if (name === "$doc_id" || name === "$node_id") return holds(chunk[name.slice(1)], one);
    if (name.startsWith("$")) refuse(`There is no operator ${name} here: it is beside the name of no field.`);
    return holds(Object.hasOwn(chunk.metadata, name) ? chunk.metadata[name] : undefined, one);
  });
}
