"""Matching on a CUDA device."""
