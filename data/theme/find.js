/** Where `sqlrag publish` has put the handbook into the folder "find" of this site, Enter in the search box searches it by words and meaning. */

const found = new URL("find/", import.meta.url);
const response = await fetch(new URL("site.json", found), { method: "HEAD" }).catch(() => null);
const box = document.querySelector("[data-md-component=search-query]");

if (response?.ok && box) {
  const hint = document.createElement("p");
  hint.className = "md-search-result__meta";
  hint.textContent = "Enter searches by words and meaning; the first time it loads 80 MB.";
  document.querySelector(".md-search-result").before(hint);
  // Before the theme does, which would open its first result.
  addEventListener("keydown", (event) => {
    if (event.target !== box || event.key !== "Enter" || !box.value.trim()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    location.assign(`${found}?${new URLSearchParams({ q: box.value })}`);
  }, true);
}
