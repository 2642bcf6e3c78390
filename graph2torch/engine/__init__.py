"""Who computes a policy's step: model.py in eager torch, the same policy compiled, or onnxruntime on the exported graph."""
