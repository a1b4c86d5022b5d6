/** The page of the routes: Swagger UI, with the key of the search page. */

import { askForKeyBy, authorization, get } from "./api.js";

askForKeyBy(async (refused) => prompt(refused ? "The server refused this key. Another one:" : "The key of this server:"));

const main = document.getElementById("routes");
try {
  const spec = await get("openapi.json");
  spec.servers = [{ url: new URL(".", document.baseURI).href.replace(/\/$/, "") }]; // a proxy may have put it below a path
  window.SwaggerUIBundle({
    spec,
    domNode: main,
    displayRequestDuration: true,
    validatorUrl: null,
    requestInterceptor: (request) => Object.assign(request, { headers: { ...request.headers, ...authorization() } }),
  });
} catch (error) {
  main.textContent = `The routes cannot be shown: ${error.message}`;
}
