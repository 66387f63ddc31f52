"""
Metrics for Prometheus, under the names that dashboards of sidekiq-prometheus-exporter and yabeda-sidekiq use.

There are two kinds, which must not be mixed: the jobs that one worker has run (`job_metrics`, exported by its
`--probe-port`), and the state of the whole fleet in Redis (`fleet.fleet_text`, exported once, by the dashboard). May
import the data API, not the engine.
"""
