/** What goes wrong, said in words with what to do about it. */

import { element } from "./text.js";

const SAYINGS = {
  0: ["The server does not answer.", "Is sqlrag serve still running on this address? Start it and try again."],
  400: ["The server does not take this search.", ""],
  401: ["A key is needed.", "Try again and give the key that the server was started with."],
  404: ["This is not in the file any more.", "It may have been changed. Search again."],
  409: ["The file and its model do not fit.", ""],
  413: ["This is too long.", "Use a shorter question."],
  422: ["The server does not take this search.", ""],
  423: ["The file is in use by another program.", "Try again when it is done."],
  429: ["There are too many requests.", "Try again in a moment."],
  500: ["The server failed.", "Its log says why."],
  501: ["The server lacks a model.", ""],
  502: ["The model, or its server, failed.", "Try again in a moment."],
  503: ["The server is busy, or the file is in use by another program.", "Try again in a moment."],
  504: ["The search took too long.", "Try again, with fewer words or with filters."],
};

/** Return a problem in one or two sentences. */
export function sentence(error) {
  const [what, remedy] = SAYINGS[error.status] ?? [error.title ?? "The page failed.", ""];
  const wait = error.retryAfter ? `Try again in ${error.retryAfter} s.` : remedy;
  const detail = error.status === 0 ? "" : (error.detail ?? error.message);
  return [what, detail, wait].filter(Boolean).join(" ");
}

/** Show a problem with a button that tries again. */
export function tell(place, error, again) {
  const button = element("button", { type: "button" }, "Try again");
  button.addEventListener("click", again);
  place.replaceChildren(element("p", {}, sentence(error)), button);
}
