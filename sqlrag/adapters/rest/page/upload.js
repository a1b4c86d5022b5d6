/** Adding documents: chosen, or dropped anywhere on the page; and what became of them. */

import { postForm } from "./api.js";
import { count, element } from "./text.js";
import { sentence } from "./words.js";

const $ = (id) => document.getElementById(id);
const KINDS = [
  ["added", "Added"],
  ["changed", "Replaced"],
  ["unchanged", "Unchanged"],
];

/** Listen, where the server can be written to; `changed()` is called when documents were stored. */
export function listen(changed) {
  const isFiles = (event) => !$("upload-toggle").hidden && !$("app").inert && event.dataTransfer?.types.includes("Files");
  const over = (event, shown) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    document.body.classList.toggle("dropping", shown);
  };
  document.addEventListener("dragover", (event) => over(event, true));
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? over(event, false));
  document.addEventListener("drop", (event) => {
    over(event, false);
    if (!isFiles(event)) return;
    const items = [...event.dataTransfer.items].map((item) => ({ entry: item.webkitGetAsEntry?.(), file: item.getAsFile() }));
    const folders = items.filter(({ entry }) => entry?.isDirectory).map(({ entry }) => entry.name);
    void send(items.filter(({ entry, file }) => file && !entry?.isDirectory).map(({ file }) => file), folders, changed);
  });
  $("upload-files").addEventListener("change", async ({ target }) => {
    await send([...target.files], [], changed);
    target.value = "";
  });
  $("upload-form").addEventListener("submit", (event) => event.preventDefault());
  $("upload-toggle").addEventListener("click", () => open($("upload").hidden));
}

/** Offer it, with the collections that there are, or not. */
export function offer(canWrite, collections) {
  $("upload-toggle").hidden = !canWrite;
  $("upload-known").replaceChildren(...collections.map(({ name }) => element("option", { value: name })));
}

function open(shown) {
  $("upload").hidden = !shown;
  $("upload-toggle").setAttribute("aria-expanded", shown);
}

async function send(files, folders, changed) {
  open(true);
  const notes = folders.map((name) => line("Left out", name, "a folder; drop the files in it"));
  $("upload-report").replaceChildren(...notes);
  $("upload-state").textContent = "";
  if (!files.length) return;
  $("upload-state").textContent = `Reading ${count(files.length, "document")} …`;
  $("upload").setAttribute("aria-busy", "true");
  const form = new FormData();
  form.append("collection", $("upload-collection").value.trim() || "default");
  for (const file of files) form.append("files", file, file.name);
  try {
    report(await postForm("documents", form), notes);
    changed();
  } catch (error) {
    $("upload-state").textContent = sentence(error, "upload");
    if (error.report) {
      report(error.report, notes, $("upload-state").textContent);
      changed();
    }
  } finally {
    $("upload").removeAttribute("aria-busy");
  }
}

function report(done, notes, state = `${count(done.documents, "document")} stored, ${count(done.chunks, "chunk")}.`) {
  $("upload-state").textContent = state;
  $("upload-report").replaceChildren(
    ...notes,
    ...done.failures.map(({ doc_id: id, reason }) => line("Not used", id, reason)),
    ...KINDS.flatMap(([kind, word]) => done[kind].map((id) => line(word, id))),
    ...done.duplicates.map(({ doc_id: id, same_as: other }) => line("Same bytes", id, `as ${other}`)),
  );
}

const line = (what, id, more = "") =>
  element("li", {}, `${what}: `, element("bdi", {}, id), ...(more ? [" – ", element("bdi", {}, more)] : []));
