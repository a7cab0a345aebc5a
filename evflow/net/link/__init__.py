"""Links to other nodes, sans-I/O: what is sent and kept so that no event is lost, whatever breaks."""
