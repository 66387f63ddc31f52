"""Names that the run and its plug-in share."""

OUTCOMES_VARIABLE = "UPSTREAM_OUTCOMES"
PLUGIN = "interop_tests.celery_upstream.plugin"
