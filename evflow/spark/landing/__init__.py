"""The running half of a Spark source: what has landed, what was committed, what leaves."""
