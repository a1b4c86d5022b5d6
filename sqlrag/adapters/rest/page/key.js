/** The dialog that asks for the key of the server. */

const $ = (id) => document.getElementById(id);

/** Ask for a key; null if none is given. `refused`: the last one was wrong. */
export function askForKey(refused) {
  const dialog = $("key");
  $("key-state").textContent = refused
    ? "The server refuses this key."
    : "It was set when the server was started.";
  $("key-value").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  $("key-value").focus();
  return new Promise((resolve) => {
    const form = dialog.querySelector("form");
    form.onsubmit = () => dialog.close("given");
    $("key-cancel").onclick = () => dialog.close("");
    dialog.addEventListener("close", () => resolve(dialog.returnValue ? $("key-value").value : null), { once: true });
  });
}
