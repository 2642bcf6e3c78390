"""Every error the package raises. Each message is one paragraph: what is wrong, where, and what to do about it.

Graph2TorchError            exit status 2, nothing written
├── ModelError              the .onnx can't be read or isn't a valid graph
├── UnsupportedGraph        the graph is valid, but holds something that can't be rebuilt
│   └── UnlikeGraphs        two graphs are too different to be run side by side
├── CheckpointError         the .pt can't be read, or holds no policy
├── PairError               the .pt is of another network than the .onnx, or it isn't said whose weights to take
├── RuleError               a rule file is wrong
├── FolderError             a folder isn't what build wrote, is damaged, or its original is missing
├── RunError                a folder isn't one that a training wrote
├── ObservationError        a file of observations can't be read, or doesn't fit the policy
├── ActingError             the policy can't act as it is asked to
├── EngineError             an engine can't compute the policy's steps, or not as eager torch does
├── TargetError             the policy can't be exported as it is asked to be
├── DependencyError         an optional package is not installed
├── OutputError             the output folder can't be written
└── DeviceError             exit status 3: the device asked for is not usable
"""

from __future__ import annotations


class Graph2TorchError(Exception):
    """Base class: `str(error)` is the paragraph to show, `exit_status` what the command line returns."""

    exit_status = 2


class ModelError(Graph2TorchError):
    """The .onnx can't be read or isn't a valid graph."""


class UnsupportedGraph(Graph2TorchError):
    """The graph is valid, but holds something that can't be rebuilt."""


class UnlikeGraphs(UnsupportedGraph):
    """Two graphs are too different to be run side by side: they draw another number of times, or one refuses what the other takes."""


class CheckpointError(Graph2TorchError):
    """The .pt can't be read, or holds no policy."""


class PairError(Graph2TorchError):
    """The .pt is of another network than the .onnx, or it isn't said whose weights to take."""


class RuleError(Graph2TorchError):
    """A rule file is wrong."""


class FolderError(Graph2TorchError):
    """A folder is not what build wrote, is damaged, or its original is missing."""


class RunError(Graph2TorchError):
    """A folder is not one that ML-Agents wrote in a training, or nothing in it can be read."""


class ObservationError(Graph2TorchError):
    """A file of observations can't be read, or doesn't fit the policy."""


class ActingError(Graph2TorchError):
    """The policy can't act as it is asked to."""


class EngineError(Graph2TorchError):
    """An engine can't compute the policy's steps, or gives something else than eager torch."""


class TargetError(Graph2TorchError):
    """The policy can't be exported as it is asked to be: there is nothing to compare with, or something that it takes is missing."""


class DependencyError(Graph2TorchError):
    """What was asked for needs an optional package that is not installed."""


class OutputError(Graph2TorchError):
    """The output folder can't be written."""


class DeviceError(Graph2TorchError):
    """The device asked for is not usable."""

    exit_status = 3
