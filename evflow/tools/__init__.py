"""What people run: the command line, what shows a flow at work, and the demo."""
