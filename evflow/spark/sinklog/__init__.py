"""The running half of a Spark sink: a log of rows, and who reads them."""
