"""What runs the stones of one node: events of a schema fit an input, a plan compiles the way they take, the
engine moves them. No socket, no thread and no clock of its own."""
