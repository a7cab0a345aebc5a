"""What holds events: objects, bytes, views and batches, and what turns one into another."""
