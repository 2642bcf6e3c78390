"""Signals, and what the oldest supported environment (torch 2.1, onnxruntime before 1.24, Python 3.10) can't do, test by test, with the reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

# tests/policies_on_device needs the process to itself: tests/devices/test_on_device.py starts it; tests/npu needs torch_npu: make test-npu
collect_ignore = [
    folder for folder, name in {"policies_on_device": "GRAPH2TORCH_DEVICE", "npu": "GRAPH2TORCH_NPU"}.items() if name not in os.environ
]

READS_LESS = "torch 2.1's safe reader refuses this kind of object as a whole, with another message"
NO_ZERO = "this onnxruntime refuses sizes of zero"
NO_OPSET_20 = "torch 2.1 exports opset 19 at most"
NO_FLOAT16 = "torch 2.1 computes no float16 on the CPU"
IN_FLOAT16 = (  # beginnings of names; of tests for several types, those for others run
    "tests/test_precisions.py::",
    "tests/judge/test_precision.py::test_every_family_in_half_precision",
    "tests/judge/test_precision.py::test_statistics_that_would_overflow",
    "tests/judge/test_precision.py::test_attention_to_padding",
    "tests/judge/test_precision.py::test_weights_that_half_precision",
    "tests/test_families.py::test_each_family_in_half_precision",
    "tests/test_families.py::test_half_precision_can_be_copied",
    "tests/test_families.py::test_a_hidden_layer_that_is_an_output",
    "tests/act/test_run.py::test_half_precision_acts",
    "tests/act/test_run.py::test_a_copy_goes_on",
    "tests/act/test_run.py::test_a_pickle_is_read",
    "tests/selftest/test_selftest.py::test_every_case_applies",
    "tests/selftest/test_selftest.py::test_a_fault_fails_what_looks_at_it[precision-converted_by_load_alone",
    "tests/selftest/test_selftest.py::test_a_fault_fails_what_looks_at_it[precision-too_large_for_half",
)
OTHERS = ("bfloat16]", "float32]")
NOT_IN_TORCH_2_1 = {
    "tests/hostile/test_checkpoints.py::test_attributes_that_hide_methods": READS_LESS,
    "tests/hostile/test_checkpoints.py::test_what_is_no_set_of_modules[bytes]": READS_LESS,
    "tests/hostile/test_checkpoints.py::test_keys_that_are_no_texts_and_values_that_are_no_tensors": READS_LESS,
    "tests/hostile/test_checkpoints.py::test_tensors_of_other_kinds_are_left_out": READS_LESS,
    "tests/hostile/test_checkpoints.py::test_a_weight_of_another_kind_is_another_network[quantised]": READS_LESS,
    "tests/hostile/test_values.py::test_sizes_of_nothing[{'observations': (0,)}]": NO_ZERO,
    "tests/hostile/test_values.py::test_sizes_of_nothing[{'observations': (0, 3)}]": NO_ZERO,
    "tests/rules/mlagents/test_entities.py::test_any_opset[18]": "torch 2.1 writes opset 18's ReduceMean as opset 13's",
    "tests/rules/mlagents/test_lstm.py::test_a_policy_with_memory_compiles_whole_and_takes_another_dtype": "torch 2.1 has no bfloat16 LSTM here",
    "tests/rules/test_generic.py::test_parameters_go_through_functions_and_are_trainable": NO_OPSET_20,
    "tests/rules/test_generic.py::test_bounds_and_axes_are_written_as_the_opset_has_them[20]": NO_OPSET_20,
    "tests/rules/test_generic.py::test_names_of_tensors_hide_nothing": NO_OPSET_20,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.__version__.startswith("2.1."):
        for item in items:
            if reason := NOT_IN_TORCH_2_1.get(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
            elif item.nodeid.startswith(IN_FLOAT16) and not item.nodeid.endswith(OTHERS):
                item.add_marker(pytest.mark.skip(reason=NO_FLOAT16))


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Ctrl-C works in the tests, also where a shell started them in the background and so with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
