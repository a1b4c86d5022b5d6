/** Shortcuts: / goes to the search box, ? shows the help, arrows, j and k move through the results, Escape closes. */

import * as filters from "./filters.js";

const $ = (id) => document.getElementById(id);
const STEPS = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

/** Listen; `closeSource` closes the panel with the document, `help` toggles the help. */
export function listen(closeSource, help) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || $("key").open) return;
    if (event.key === "Escape") escape(event, closeSource);
    else if (event.key === "/" && !typing(event.target)) take(event, () => $("query").select());
    else if (event.key === "?" && !typing(event.target) && !$("app").inert) take(event, help);
    else if (event.key in STEPS) step(event);
  });
  document.addEventListener("click", (event) => filters.close(event.target.closest("details.filter")));
}

function escape(event, closeSource) {
  if (filters.close()) event.preventDefault();
  else if (!$("source").hidden) take(event, closeSource);
}

/** Move to the next or previous result; from the box, to the first. Elsewhere arrows keep their usual meaning. */
function step(event) {
  const arrow = event.key.startsWith("Arrow");
  if (arrow ? event.target.closest("#source, [type=radio], .filter, canvas") : typing(event.target)) return;
  const links = [...document.querySelectorAll("#list .open")];
  const here = links.findIndex((link) => link.closest("li").contains(event.target));
  if (!links.length || (arrow && here < 0 && event.target !== $("query") && event.target !== document.body)) return;
  const next = here + STEPS[event.key];
  if (next < 0) {
    if (here === 0) take(event, () => $("query").focus());
    return;
  }
  take(event, () => links[Math.min(next, links.length - 1)].focus());
}

function take(event, act) {
  event.preventDefault();
  act();
}

const typing = (target) => target.matches("input:not([type=radio], [type=checkbox]), textarea, select");
