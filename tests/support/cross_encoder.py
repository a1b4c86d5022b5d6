"""Makes a tiny cross-encoder in ONNX whose scores can be added up by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

WEIGHTS = {"[PAD]": 1e6, "[UNK]": 0.0, "[CLS]": 0.0, "[SEP]": 0.0, "cat": 1.5, "dog": -0.5, "fish": 0.25, "nan": np.nan}
WINDOW = 16


def make_cross_encoder(folder, *, columns=1, file="model.onnx"):
    """Write a model whose logit is 100 × the sum of the question's weights + that of the text's, ``columns`` times."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper, save
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    node = helper.make_node
    nodes = [
        node("Gather", ["weights", "input_ids"], ["weighed"]),
        node("Cast", ["token_type_ids"], ["in_text"], to=TensorProto.FLOAT),
        node("Sub", ["one", "in_text"], ["in_query"]),
        node("Mul", ["in_query", "hundred"], ["query_factor"]),
        node("Add", ["query_factor", "in_text"], ["factor"]),
        node("Mul", ["weighed", "factor"], ["products"]),
        node("ReduceSum", ["products", "axis"], ["logit"], keepdims=1),
        node("Concat", ["logit"] * columns, ["logits"], axis=1),
    ]
    constants = {
        "weights": np.array(list(WEIGHTS.values()), dtype=np.float32),
        "one": np.float32([1]),
        "hundred": np.float32([100]),
        "axis": np.array([1], dtype=np.int64),
    }
    shape = ["batch", "length"]
    graph = helper.make_graph(
        nodes,
        "cross-encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "token_type_ids")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", columns])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(folder / file))

    vocabulary = {word: number for number, word in enumerate(WEIGHTS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.enable_padding(length=WINDOW)  # as some files have it; it must not count
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "config.json": {"pad_token_id": 0},
        "tokenizer_config.json": {"model_max_length": WINDOW, "pad_token": "[PAD]"},
        "special_tokens_map.json": {"pad_token": "[PAD]", "unk_token": "[UNK]"},
    }
    for name, content in settings.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder
