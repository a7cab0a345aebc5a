"""A live map of tiles in browsers: ``gateway`` serves it, ``scene`` is what each browser is to be told."""
