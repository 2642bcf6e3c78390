"""What onnxruntime really computes with: a provider that it lists may still hand everything to the CPU without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph2torch.text import one_line, printable

from .probe import ask, tell

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class Provider:
    """A provider that onnxruntime lists.

    obtained: a session asked for it was given it, and it alone added two numbers right
    detail:   why not; printable
    """

    name: str
    obtained: bool
    detail: str = ""


def examine_providers(timeout: float) -> tuple[list[Provider], str]:
    """Every listed provider, tried in a process of its own; and what is wrong with onnxruntime as a whole ("" if nothing is)."""
    told, harm = ask("graph2torch.devices.providers", [], timeout)
    listed = next((item["listed"] for item in told if "listed" in item), None)
    if listed is None:
        failed = next((item["failed"] for item in told if "failed" in item), harm)
        return [], one_line(str(failed), 240)
    found = {item["provider"]: item for item in told if "provider" in item}
    for name in listed:
        if name not in found:
            again, harm = ask("graph2torch.devices.providers", [name], timeout)
            found |= {item["provider"]: item for item in again if "provider" in item}
            found.setdefault(name, {"obtained": False, "detail": f"the process that tried it came to harm: {harm}"})
    return [Provider(printable(str(n), 60), bool(found[n]["obtained"]), one_line(str(found[n]["detail"]), 240)) for n in listed], ""


# ---------------------------------------------------------------------------------------------- in the child process
def answer(arguments: Sequence[str]) -> None:
    """Tells which providers are listed, then a line for each (of `arguments`, if there are any)."""
    try:
        import onnxruntime as ort

        listed = ort.get_available_providers()
    except BaseException as error:
        tell({"failed": f"onnxruntime can't be loaded: {type(error).__name__}: {error}"[:400]})
        return
    tell({"listed": listed})
    for name in arguments or listed:
        obtained, detail = _try(name)
        tell({"provider": name, "obtained": obtained, "detail": detail})


def _try(name: str) -> tuple[bool, str]:
    import numpy as np
    import onnx
    import onnxruntime as ort

    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "addition", [x], [y])
    model = onnx.helper.make_model(graph, ir_version=4, opset_imports=[onnx.helper.make_opsetid("", 9)])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if name != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=[name])
        if name not in session.get_providers():
            return False, f"a session asked for it was given {', '.join(session.get_providers())}"
        result = session.run(None, {"x": np.array([1, 2], np.float32)})[0].tolist()
    except Exception as error:
        if "fallback to CPU EP has been explicitly disabled" in str(error):
            return False, "it leaves the addition to the CPU"
        return False, f"{type(error).__name__}: {error}"[:400]
    return (True, "") if result == [2.0, 4.0] else (False, f"[1, 2] + [1, 2] gave {result}")
