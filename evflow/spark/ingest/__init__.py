"""The job that a Spark source runs itself."""
