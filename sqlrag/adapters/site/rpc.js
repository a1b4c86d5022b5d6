/** Calls of functions in a worker. */

/** A failure, with a status as of HTTP, what it is in a few words, and the details. */
export class Problem extends Error {
  constructor(status, title, detail = "") {
    super(detail ? `${title}. ${detail}` : title);
    Object.assign(this, { name: "Problem", status, title, detail });
  }
}

/** In a worker: report progress. */
export const tell = (told) => postMessage({ told });

/** In a worker: answer calls of these functions; `check` is called before each answer is sent. */
export function answer(functions, check = () => {}) {
  addEventListener("message", async ({ data: { id, name, values } }) => {
    try {
      const result = await functions[name](...values);
      await check();
      postMessage({ id, result });
    } catch (error) {
      const { status = 500, title = "The search failed", detail = error.message } = error;
      postMessage({ id, problem: { status, title, detail } });
    }
  });
  postMessage({ ready: true });
}

/** Start a worker and return `{call(name, ...values), end()}`; `told` gets what it reports. */
export function start(url, told) {
  const worker = new Worker(url, { type: "module" });
  const waiting = new Map();
  let number = 0;
  let settle;
  const ready = new Promise((resolve, reject) => (settle = { resolve, reject }));
  ready.catch(() => {}); // each call tells it
  worker.addEventListener("message", ({ data }) => {
    if ("ready" in data) return settle.resolve();
    if ("told" in data) return told(data.told);
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.problem) reject(new Problem(data.problem.status, data.problem.title, data.problem.detail));
    else resolve(data.result);
  });
  // A script that cannot be loaded gives no message.
  worker.addEventListener("error", ({ message, filename }) => {
    const detail = `${message ?? "A script cannot be loaded"}: ${filename || url.pathname}. Publish the site again.`;
    for (const { reject } of [settle, ...waiting.values()]) reject(new Problem(424, "A part of this site is missing or damaged", detail));
    waiting.clear();
  });
  return {
    async call(name, ...values) {
      await ready;
      return new Promise((resolve, reject) => {
        waiting.set(++number, { resolve, reject });
        worker.postMessage({ id: number, name, values }, values.filter((value) => value instanceof ArrayBuffer));
      });
    },
    end: () => worker.terminate(),
  };
}

/** Fetch a file of a known size; `told` gets how much has arrived, which a worker reports to its page. */
export async function fetched(url, bytes, told = tell) {
  const missing = (why) => new Problem(424, "A part of this site is missing or damaged", `${url}: ${why}. Publish the site again.`);
  const response = await fetch(url).catch((error) => {
    throw missing(error.message);
  });
  if (!response.ok) throw missing(`HTTP ${response.status}`);
  const content = new Uint8Array(bytes);
  const reader = response.body.getReader();
  let have = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (have + value.length > bytes) throw missing(`more than ${bytes} bytes`);
    content.set(value, have);
    have += value.length;
    told({ file: new URL(url).pathname.split("/").at(-1), have, bytes });
  }
  if (have !== bytes) throw missing(`${have} bytes instead of ${bytes}`);
  return content;
}

/** Return what tells a file that is read in ranges from a later one; null where its server sends no ranges, or does not tell. */
export async function tagOf({ url, bytes }) {
  const head = await fetch(url, { method: "HEAD", headers: { Range: "bytes=0-" }, cache: "no-store" }).catch(() => null);
  if (head?.status !== 206 || Number(head.headers.get("Content-Length")) !== bytes) return null;
  return head.headers.get("ETag") ?? head.headers.get("Last-Modified");
}
