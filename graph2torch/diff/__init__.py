"""Compares any two files: structure, weights, numbers."""
