"""Writes a built policy for a target: other opsets, fixed batches, pruned, half precision, compiled."""
