"""The running half of a Spark source: what is staged, what was committed, what leaves."""
