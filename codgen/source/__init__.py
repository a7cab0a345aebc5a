"""From source to the typed tree: Cod and the Python subset, and the one checker that both build with."""
