"""
Numbers for Prometheus, under the names that dashboards of sidekiq-prometheus-exporter and yabeda-sidekiq know.

Two kinds that must not be mixed: what one worker has run (`job_metrics`, exported by its `--probe-port`), and what
Redis says of the whole fleet (`fleet.fleet_text`, exported once, by the dashboard). May import the data API, not the
engine.
"""
