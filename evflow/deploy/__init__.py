"""Deployments: a graph over several nodes, changed as a whole or not at all."""
