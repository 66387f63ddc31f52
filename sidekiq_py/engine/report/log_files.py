"""Reopens log files after they were rotated (signal USR2)."""

import logging


def reopen_log_files() -> None:
    """Have every file handler of the program close its file and open the one that has its name now."""
    loggers = [logging.getLogger(), *[logging.getLogger(name) for name in list(logging.Logger.manager.loggerDict)]]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if isinstance(handler, logging.FileHandler):
            handler.acquire()
            try:
                handler.close()
                handler.stream = handler._open()
            finally:
                handler.release()
