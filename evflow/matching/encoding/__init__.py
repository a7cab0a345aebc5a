"""Events of every form as the rows that engines read."""
