"""
Names that editors import into programs that have no use for them. There is no mingle: revokes are in Redis, and workers
do not have to tell each other.
"""

from sidekiq_celery.utils.log import get_logger

__all__ = ("debug", "exception", "info")

_logger = get_logger(__name__)
debug, info, exception = _logger.debug, _logger.info, _logger.exception
