"""The engine ``index``: compiled; each filter stands in the one list where an event finds it cheapest."""
