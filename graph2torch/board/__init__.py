"""Writes what was found for TensorBoard: figures, weights and the graph, beside the curves of the training."""
