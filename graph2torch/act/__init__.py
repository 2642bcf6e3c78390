"""Runs a built policy: observations in, actions out."""
