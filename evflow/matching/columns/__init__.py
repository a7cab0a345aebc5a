"""Many filters as columns: how users hand them over, and how they are read and checked."""
