/** Errors as sentences, with what to do about them. */

import { element } from "./text.js";

const SENTENCES = {
  0: ["The server does not respond.", "Is sqlrag serve still running on this address? Start it and try again."],
  400: ["The server refuses this search.", ""],
  401: ["A key is needed.", "Try again and enter the key of the server."],
  404: ["This is no longer in the file.", "The file may have changed. Search again."],
  409: ["The file and its model do not match.", ""],
  413: ["This is too long.", "Use a shorter question."],
  422: ["The server refuses this search.", ""],
  423: ["The file is in use by another program.", "Try again when it is done."],
  429: ["There are too many requests.", "Try again in a moment."],
  500: ["The server failed.", "See its log."],
  501: ["The server does not have a model for this.", ""],
  502: ["The model, or its server, failed.", "Try again in a moment."],
  503: ["The server is busy, or the file is in use by another program.", "Try again in a moment."],
  504: ["The search took too long.", "Try again, with fewer words or with filters."],
};

const OF_UPLOADS = {
  413: ["These documents are too large together.", "Send fewer at once."],
  422: ["The server refuses these documents.", ""],
  504: ["Storing them took too long.", "Send fewer at once."],
};

/** Return a problem of a search, or of an upload, in one or two sentences. */
export function sentence(error, of = "search") {
  const known = of === "upload" ? { ...SENTENCES, 409: ["", ""], ...OF_UPLOADS } : SENTENCES;
  const [what, remedy] = known[error.status] ?? [error.title ?? "The page failed.", ""];
  const wait = error.retryAfter ? `Try again in ${error.retryAfter} s.` : remedy;
  const detail = error.status === 0 ? "" : (error.detail ?? error.message);
  return [what, detail, wait].filter(Boolean).join(" ");
}

/** Show a problem with a button to try again. */
export function showProblem(place, error, retry) {
  const button = element("button", { type: "button" }, "Try again");
  button.addEventListener("click", retry);
  place.replaceChildren(element("p", {}, sentence(error)), button);
}
