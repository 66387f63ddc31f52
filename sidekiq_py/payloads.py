"""
Read and write payloads byte for byte as Sidekiq's releases do; the names of Redis keys.

For programs and extensions that inspect jobs. All functions are pure: no socket, no clock. This module is public and
its names are stable.
"""

from sidekiq_py.wire import keys
from sidekiq_py.wire.control_characters import escaped, escaped_lines
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import UNPRINTABLE_ERROR, error_class_name, error_text, record_failure
from sidekiq_py.wire.json_dialect import dump_args, dumps, dumps_known, loads
from sidekiq_py.wire.payload import args_of, dump, for_queue, parse_job, score_text, shown
from sidekiq_py.wire.push_template import ItemTemplate

__all__ = (
    "UNPRINTABLE_ERROR", "Dialect", "ItemTemplate", "args_of", "dump", "dump_args", "dumps", "dumps_known",
    "error_class_name", "error_text", "escaped", "escaped_lines", "for_queue", "keys", "loads", "parse_job",
    "record_failure", "score_text", "shown",
)  # fmt: skip
