"""The parts of the stone ``Match``: what is subscribed, how it is kept, and how events leave."""
