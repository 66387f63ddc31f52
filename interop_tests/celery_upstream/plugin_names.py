"""What the run and the plug-in within it agree on."""

OUTCOMES_VARIABLE = "UPSTREAM_OUTCOMES"
PLUGIN = "interop_tests.celery_upstream.plugin"
