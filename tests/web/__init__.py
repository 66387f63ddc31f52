"""Tests the dashboard without a server; `interop_tests/test_dashboard_in_a_browser.py` uses a browser."""
