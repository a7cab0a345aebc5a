"""Seeing what goes on: tables, live views, metrics, recordings of running nodes."""
