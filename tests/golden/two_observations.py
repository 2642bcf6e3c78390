"""Tiny: 5 observations → 8 → 8 → 2 continuous actions, made by graph2torch 0.1.0 from
Tiny.onnx (sha256 ……, pytorch 1.8, opset 9) and Tiny.pt (sha256 ……, step 5000).
in  obs_0                           [batch, 3]  observation 0: a vector, as the environment gives it
in  obs_1                           [batch, 2]  observation 1: a vector, as the environment gives it
out version_number                  [1]         version of ML-Agents' model format: 3
out memory_size                     [1]         size of the recurrent memory: 0
out continuous_actions              [batch, 2]  continuous actions, sampled
out continuous_action_output_shape  [1]         number of continuous actions: 2
"""
from collections import namedtuple
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

CHECKPOINT = {"normalizer_0": "network_body.observation_encoder.processors.0.normalizer",
              "normalizer_1": "network_body.observation_encoder.processors.1.normalizer", "body": "network_body._body_endoder.seq_layers",
              "mu": "action_model._continuous_distribution.mu", "log_sigma": "action_model._continuous_distribution.log_sigma"}
METADATA = {"version_number": [3.0], "memory_size": [0.0], "continuous_action_output_shape": [2.0]}
Outputs = namedtuple("Outputs", "version_number memory_size continuous_actions continuous_action_output_shape")
OUTPUT_NAMES = {field: field for field in Outputs._fields}
Noise = namedtuple("Noise", "continuous_actions")


class Normalizer(nn.Module):  # clips (x - mean) / std to ±5
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))  # a sum: divide it by the steps
        self.register_buffer("normalization_steps", torch.tensor(1))
        self.register_buffer("std", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp((x - self.running_mean) / self.std, -5, 5)

    def _apply(self, fn, recurse=True):  # moves the statistics, never converts them: they overflow float16
        return super()._apply(lambda t: t.to(fn(t.new_empty(0)).device), recurse)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.normalizer_0 = Normalizer(3)
        self.normalizer_1 = Normalizer(2)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 8), nn.SiLU())
        self.mu = nn.Linear(8, 2)
        self.log_sigma = nn.Parameter(torch.zeros(1, 2))
        for name, value in METADATA.items():
            self.register_buffer(name, torch.tensor(value), persistent=False)

    def forward(self, obs_0: Tensor, obs_1: Tensor, noise: Noise | None = None) -> Outputs:
        mu = self.mu(self.body(torch.cat([self.normalizer_0(obs_0), self.normalizer_1(obs_1)], dim=1)))
        sigma = torch.exp(mu * 0 + self.log_sigma)
        z = noise.continuous_actions if noise else torch.randn_like(mu) if mu.is_cpu else torch.randn(mu.shape).to(mu.device)
        sampled = torch.clamp(mu + z * sigma, -3, 3) / 3
        return Outputs(self.version_number, self.memory_size, sampled, self.continuous_action_output_shape)

    def act(self, obs_0: Tensor, obs_1: Tensor) -> Tensor:  # deterministic actions alone
        return torch.clamp(self.mu(self.body(torch.cat([self.normalizer_0(obs_0), self.normalizer_1(obs_1)], dim=1))), -3, 3) / 3

    def distribution(self, obs_0: Tensor, obs_1: Tensor) -> torch.distributions.Distribution:  # of the actions before clip and / 3
        mu = self.mu(self.body(torch.cat([self.normalizer_0(obs_0), self.normalizer_1(obs_1)], dim=1)))
        return torch.distributions.Independent(torch.distributions.Normal(mu, torch.exp(mu * 0 + self.log_sigma)), 1)


def load(path="", device="cpu", dtype=torch.float32) -> Policy:
    policy = Policy()
    if str(path).endswith(".pt"):  # of the same training, later
        theirs = torch.load(path, map_location="cpu", weights_only=True)["Policy"]
        state = {o + k[len(t):]: v for o, t in CHECKPOINT.items() for k, v in theirs.items() if f"{k}.".startswith(f"{t}.")}
        for n in {k.rsplit(".", 1)[0] for k in state if k.endswith(".running_variance")}:
            state[f"{n}.std"] = (state[f"{n}.running_variance"] / state[f"{n}.normalization_steps"]).double().sqrt().float()
        print("missing, unexpected keys:", *policy.load_state_dict(state, strict=False))
    else:
        policy.load_state_dict(load_file(path or Path(__file__).with_name("weights.safetensors")))
    for layer in (m for m in policy.modules() if isinstance(m, nn.Linear)):
        layer.weight.data = layer.weight.data.t().contiguous().t()  # by columns: faster in small batches
    if dtype != torch.float32:  # observations and their statistics stay float32
        policy.body.register_forward_pre_hook(lambda _, x: x[0].to(dtype))
    return policy.to(device, dtype).eval()
