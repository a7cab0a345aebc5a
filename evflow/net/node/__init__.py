"""A node, one process's end of the overlay: sockets, keys and shared memory around ``evflow.net.link``."""
