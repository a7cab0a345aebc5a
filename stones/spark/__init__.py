"""Spark beside evflow: rows of DataFrames become events, and events rows of DataFrames."""
