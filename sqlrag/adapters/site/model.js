/** A worker that embeds questions: the tokenizer and the model that the file was filled with. */

import * as ort from "../assets/onnxruntime/ort.wasm.bundle.min.js";
import { Tokenizer } from "../assets/tokenizers/tokenizers.min.js";
import { answer, fetched } from "./rpc.js";

let session = null;
let tokenizer = null;
let most = 0;

/** Load `{url, bytes, tokenizer, max_tokens, wasm, integrity}`; addresses are absolute, and `integrity` is undefined unless it is of a CDN. */
async function load(model) {
  ort.env.wasm.numThreads = 1; // more need headers that a plain server does not send
  if (model.integrity) ort.env.wasm.wasmBinary = await (await fetch(model.wasm, { integrity: model.integrity })).arrayBuffer();
  else ort.env.wasm.wasmPaths = { wasm: model.wasm };
  const [content, rules] = await Promise.all([
    fetched(model.url, model.bytes),
    fetched(model.tokenizer, model.tokenizer_bytes),
  ]);
  tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(rules)), {});
  session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
  most = model.max_tokens;
}

/** Return the vector of a question, of unit norm: the mean over its tokens, which are cut off at the window. */
async function embed(text) {
  const all = tokenizer.encode(text).ids;
  const ids = all.length > most ? [...all.slice(0, most - 1), all.at(-1)] : all;
  const row = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, ids.length]);
  const feed = { input_ids: row(ids), attention_mask: row(ids.map(() => 1)), token_type_ids: row(ids.map(() => 0)) };
  const named = Object.fromEntries(session.inputNames.map((name) => [name, feed[name]]));
  const output = await session.run(named);
  const { data, dims } = output[session.outputNames[0]];
  const width = dims.at(-1);
  const mean = new Float64Array(width);
  data.forEach((value, place) => (mean[place % width] += value / ids.length));
  const length = Math.hypot(...mean);
  return Float32Array.from(mean, (value) => value / length);
}

answer({ load, embed });
