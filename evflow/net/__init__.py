"""Between processes: links, which are sans-I/O, and nodes, which have the sockets."""
