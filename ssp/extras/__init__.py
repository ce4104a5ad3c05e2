"""Parts beside the core, which few need; the core reaches them by `ssp.base.extras` alone."""
