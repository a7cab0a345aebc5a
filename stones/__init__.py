"""The stones: one file a kind, each on the contract of ``evflow.stone``."""
