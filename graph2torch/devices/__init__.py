"""Devices other than the CPU: what they are called, whether they can be used, and what a policy computes there."""
