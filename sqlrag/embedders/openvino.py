"""The models of the ``onnx`` provider on OpenVINO, which embeds more texts in the same time."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlrag.embedders.onnx import OnnxEmbedder
from sqlrag.errors import MissingExtraError, ModelUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LEAST_TOKENS = 16

"""Runs of fewer tokens are filled with copies: up to 4 take another way in bfloat16, with other digits."""


_used_by: dict[str, int] = {}


class OpenVinoEmbedder(OnnxEmbedder):
    """Embeds on the CPU with OpenVINO: the models, tokenizers and runs of :class:`OnnxEmbedder`, another runtime.

    It computes in bfloat16 where the processor does: a cosine of 0.9999 with the vectors of ``onnx``. Elsewhere it
    computes with 32 bits, and with eight-bit numbers where the weights are stored in eight bits, as those of the extra
    ``offline`` are: a cosine of 0.9995. So files built with either provider are searched and updated with the other. A
    vector depends on its text and not on its neighbours.

    Parameters
    ----------
    model_name, cache_dir, model_path, threads, query_prefix, passage_prefix
        As :class:`OnnxEmbedder` has them.

    Raises
    ------
    MissingExtraError
        The extra ``openvino`` is not installed.
    InputError, ModelUnavailableError
        As :class:`OnnxEmbedder` raises them; a model may also have an operator that OpenVINO lacks. A process
        that was forked from one that used OpenVINO has no model at all, not even one that was loaded before.
    """

    provider = "openvino"

    def _runtime(self) -> Callable[[bytes | str], Any]:
        _check_process()
        core = _silent_openvino().Core()
        return lambda model: _Session(core, model, self._threads)

    @staticmethod
    def obstacle() -> str | None:
        """Return why the provider cannot be used here, None where it can."""
        if find_spec("openvino") is None:
            return str(MissingExtraError("The embedding provider 'openvino'", "openvino"))
        return None


class _Node(NamedTuple):
    name: str


class _Session:
    """An OpenVINO model with the three methods of ONNX Runtime's session; threads may share it."""

    def __init__(self, core: Any, model: bytes | str, threads: int) -> None:
        # In bfloat16 without the eight-bit products, which are less exact.
        precision = (
            {"INFERENCE_PRECISION_HINT": "bf16", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
            if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            else {"INFERENCE_PRECISION_HINT": "f32"}
        )
        # A stream runs on one thread, so that runs go on side by side; pinned threads would share processors with
        # those of other processes.
        streams = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads, "ENABLE_CPU_PINNING": False}
        self._model = core.compile_model(core.read_model(model), "CPU", {**precision, **streams})
        self._idle: list[Any] = []  # a request takes one run at a time

    def get_inputs(self) -> list[_Node]:
        return [_Node(name) for port in self._model.inputs for name in sorted(port.names)]

    def get_outputs(self) -> list[_Node]:
        return [_Node(name) for port in self._model.outputs for name in sorted(port.names)]

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        _check_process()
        rows, tokens = next(iter(feed.values())).shape
        if rows * tokens < _LEAST_TOKENS:
            feed = {name: np.tile(values, (_LEAST_TOKENS // tokens + 1, 1)) for name, values in feed.items()}
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._model.create_infer_request()
        found = request.infer(feed, share_inputs=True)
        self._idle.append(request)
        ports = self._model.outputs if names is None else [self._model.output(name) for name in names]
        return [found[port][:rows] for port in ports]


def _check_process() -> None:
    """Raise ModelUnavailableError in a fork of the process that first used OpenVINO: its threads are missing there."""
    if _used_by.setdefault("process", os.getpid()) != os.getpid():
        raise ModelUnavailableError(
            "OpenVINO was used before this process was forked, and would wait forever for threads that a fork does not "
            'have. Start processes by "spawn" or "forkserver", load the model in the forked process alone, or use '
            "provider='onnx'."
        )


def _silent_openvino() -> Any:
    """Import OpenVINO with its telemetry off: it reports every import, and writes an id below the home folder."""
    hide = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
    if hide:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment] # as if it were not installed
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError("The embedding provider 'openvino'", "openvino") from error
    finally:
        if hide:
            del sys.modules["openvino_telemetry"]
    return openvino
