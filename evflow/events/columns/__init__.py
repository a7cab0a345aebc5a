"""Events as columns, in and out: numpy, pandas, pyarrow, and mappings of anything that counts as a column."""
