"""A graph that runs in the background of a process: places to submit events to, and the thread that drives an
engine."""
