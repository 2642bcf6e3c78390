"""Makes this folder's Huggy pair from a graph and a checkpoint that ML-Agents wrote.

    python assets/make_huggy.py Huggy-2000049.onnx Huggy-2000049.pt

The graph is copied as it is. From the checkpoint Adam's state is dropped, two thirds of its size: training can go on
from it (Adam starts afresh), and nothing that the policy or the critic computes is lost.
"""

import argparse
import hashlib
import shutil
from pathlib import Path

import torch


def slim(source: Path, target: Path) -> None:
    """Writes `source` without the optimisers' state to `target`; every tensor of a module stays, bit for bit."""
    checkpoint = torch.load(source, map_location="cpu", weights_only=True)
    for entry in checkpoint.values():
        if "param_groups" in entry:
            entry["state"] = {}
    torch.save(checkpoint, target)


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies an ML-Agents pair, without the optimiser's state.")
    parser.add_argument("onnx", type=Path, help="the exported graph")
    parser.add_argument("checkpoint", type=Path, help="the checkpoint of the same step")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, help="folder for Huggy.onnx and Huggy.pt (default: this one)")
    arguments = parser.parse_args()
    graph, checkpoint = arguments.to / "Huggy.onnx", arguments.to / "Huggy.pt"
    shutil.copyfile(arguments.onnx, graph)
    slim(arguments.checkpoint, checkpoint)
    for path in (graph, checkpoint):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.stat().st_size:>9,}  {path.name}")


if __name__ == "__main__":
    main()
