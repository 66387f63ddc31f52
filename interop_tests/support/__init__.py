"""
The other end of the wire: releases of real Ruby Sidekiq, and jobs that exist in both languages.

A Ruby release is a parameter of every test here; see `ruby.py` for how to add one.
"""
