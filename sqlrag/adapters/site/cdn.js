/** Imports libraries from a CDN. Their digests are known: a browser refuses what has another. */

async function text([url, integrity]) {
  const response = await fetch(url, { integrity });
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  return response.text();
}

const address = (code) => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));

/** Import a script, `[url, integrity]`, and Arrow where it needs that: each is changed as `sqlrag publish` does with a copy. */
export async function imported(script, arrow) {
  const [code, own] = await Promise.all([text(script), arrow && text(arrow)]);
  const module = own && address(`const scope = {};\n(function () {\n${own}\n}).call(scope);\nexport default scope.Arrow;`);
  return import(address(module ? code.replaceAll(/import ?\* ?as (\w+) ?from ?"apache-arrow"/g, `import $1 from "${module}"`) : code));
}
