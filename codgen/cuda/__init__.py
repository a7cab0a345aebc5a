"""The typed tree as CUDA C: one event a thread, with the answers of the interpreter."""
