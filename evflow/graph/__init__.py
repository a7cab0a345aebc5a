"""The description of a graph: stones, links, kinds and edits, as data; nothing here runs."""
