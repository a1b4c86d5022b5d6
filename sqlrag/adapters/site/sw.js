/** Keeps what the page has loaded, so that it opens again without network. The version is that of the published files. */

const CACHE = "sqlrag VERSION";

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("activate", (event) => event.waitUntil(clean()));

async function clean() {
  for (const name of await caches.keys()) if (name.startsWith("sqlrag ") && name !== CACHE && (await isOurs(name))) await caches.delete(name);
  await self.clients.claim();
}

/** Other sites of the same origin have caches of their own. */
async function isOurs(name) {
  const [first] = await (await caches.open(name)).keys();
  return !first || first.url.startsWith(self.registration.scope);
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || request.headers.has("Range") || !request.url.startsWith(self.registration.scope)) return;
  event.respondWith(answer(request));
});

/** Files are answered from the cache; the page and site.json first from the network, so that a new version is seen. */
async function answer(request) {
  const cache = await caches.open(CACHE);
  const fresh = request.mode === "navigate" || request.url.endsWith("/site.json");
  const key = request.mode === "navigate" ? self.registration.scope : request; // one page for every search
  const kept = await cache.match(key);
  if (kept && !fresh) return kept;
  try {
    const response = await fetch(request);
    if (response.status === 200) await cache.put(key, response.clone());
    return response;
  } catch (error) {
    if (kept) return kept;
    throw error;
  }
}
