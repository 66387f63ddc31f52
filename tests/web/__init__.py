"""The dashboard, asked without a server in between; `interop_tests/test_dashboard_in_a_browser.py` has a browser."""
