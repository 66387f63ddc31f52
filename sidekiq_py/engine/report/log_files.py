"""Opens log files anew after they were rotated away (signal USR2)."""

import logging


def reopen_log_files() -> None:
    """Let every file handler of the program close its file; the next line opens the one that now bears the name."""
    loggers = [logging.getLogger(), *[logging.getLogger(name) for name in list(logging.Logger.manager.loggerDict)]]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if isinstance(handler, logging.FileHandler):
            handler.acquire()
            try:
                handler.close()
                handler.stream = handler._open()
            finally:
                handler.release()
