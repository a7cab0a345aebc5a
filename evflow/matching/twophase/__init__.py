"""The engine ``two-phase``: first the predicates that an event satisfies, then the filters that have them."""
