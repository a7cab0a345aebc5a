"""ECho event channels, built of split, bridge, filter and terminal stones (EVPath paper, section 4.1)."""
