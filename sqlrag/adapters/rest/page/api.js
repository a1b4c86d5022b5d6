/** Requests to the server: JSON, event streams, problems as errors, and the key if one is needed. */

// A page without a server names the script that answers its requests; see sqlrag publish.
const backend = document.querySelector("meta[name=sqlrag-backend]")?.content;
const { respond } = backend ? await import(new URL(backend, document.baseURI)) : { respond: fetch.bind(globalThis) };

const KEY = "sqlrag-key";

/** The failure of a request; `status` is that of HTTP, 0 without a response. */
export class Problem extends Error {
  constructor(status, title, detail = "", retryAfter = null, report = null) {
    super(detail || title);
    Object.assign(this, { status, title, detail, retryAfter, report });
  }
}

let askForKey = async () => null;
let asking = null;

/** Set the function that asks for a key: `ask(refused)` returns one, or null; concurrent requests ask once. */
export function askForKeyBy(ask) {
  askForKey = ask;
}

/** The header with the key, if there is one. */
export function authorization() {
  const key = sessionStorage.getItem(KEY);
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}

export const get = async (path, signal) => (await send(path, { signal })).json();

export const post = async (path, body, signal) => (await send(path, { ...json(body), signal })).json();

/** Send a form, such as one with files. */
export const postForm = async (path, body) => (await send(path, { method: "POST", body })).json();

/** Fetch a file. */
export const blob = async (path) => (await send(path, {}, "*/*")).blob();

/** Yield the events of an answer as `{type, data}`. */
export async function* events(path, body, signal) {
  const response = await send(path, { ...json(body), signal }, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await read(reader);
    waiting += done ? "\n\n" : value;
    const blocks = waiting.replace(/\r\n?(?!$)/g, "\n").split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
    if (done) return;
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : gone();
  }
}

function parsed(block) {
  let type = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, name, value] = /^(\w*): ?(.*)$/.exec(line) ?? [];
    if (name === "event") type = value;
    if (name === "data") data.push(value);
  }
  return data.length ? { type, data: JSON.parse(data.join("\n")) } : null;
}

const json = (body) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { "Content-Type": "application/json" },
});

async function send(path, options, accept = "application/json") {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, Accept: accept, ...authorization() };
    const response = await answered(path, { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401) throw await problem(response);
    if (sessionStorage.getItem(KEY) !== key) continue; // another request has got a key meanwhile
    asking ??= askForKey(key !== null).finally(() => (asking = null));
    const given = await asking;
    if (given === null) throw await problem(response);
    sessionStorage.setItem(KEY, given);
  }
}

async function answered(path, options) {
  try {
    return await respond(new URL(path, document.baseURI), { cache: "no-store", ...options });
  } catch (error) {
    throw error.name === "AbortError" ? error : gone();
  }
}

const gone = () => new Problem(0, "The server does not respond");

async function problem(response) {
  const retry = Number(response.headers.get("Retry-After"));
  const body = await response.json().catch(() => ({}));
  const detail = typeof body.detail === "string" ? body.detail : "";
  return new Problem(response.status, body.title ?? `HTTP ${response.status}`, detail, retry > 0 ? retry : null, body.report ?? null);
}
