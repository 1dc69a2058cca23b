"""What a candidate warns of and logs, in an interpreter where the tests listen for it.

The tests' side tells its filters of warnings and its levels of loggers; the candidate's side tells what
passes them, which the tests' side then warns of and logs itself.
"""

import logging
import warnings

# Words of tests that listen.
_HEARING_WORDS = ("warn", "Warn", "log", "Log")


class Hearing:
    """Warnings and logs of one side."""

    def __init__(self, is_judge):
        self._filters, self._levels, self._kept = list(warnings.filters), self._found_levels(), {}
        self._first_levels = self._levels
        self._heard = []
        if not is_judge:
            warnings._showwarnmsg_impl = self._warned
            original = logging.Logger.callHandlers

            def call_handlers(logger, record):
                self._heard.append((logger.name, record.levelno, record.getMessage(), record.lineno))
                original(logger, record)

            logging.Logger.callHandlers = call_handlers

    def _warned(self, warning):
        self._heard.append((warning.message, warning.lineno))

    def heard(self):
        """Returns what the candidate has warned of and logged since the last time."""
        heard, self._heard = tuple(self._heard), []
        return heard

    def hear(self, heard):
        """Warns of and logs what the candidate has."""
        for one, *rest in heard:
            if isinstance(one, Warning):
                warning = warnings.WarningMessage(one, type(one), "<solution>", rest[0])
                warnings._showwarnmsg(warning)
                continue
            level, text, line = rest
            if not (type(one) is type(text) is str and type(level) is type(line) is int):
                raise Malformed("the candidate sent an invalid log")
            logger = logging.getLogger(one)
            if logger.hasHandlers():
                logger.handle(logging.LogRecord(one, level, "<solution>", line, text, (), None))

    def _found_levels(self):
        loggers = logging.root.manager.loggerDict.items()
        found = {name: one.level for name, one in loggers if isinstance(one, logging.Logger) and one.level}
        return {**found, "root": logging.root.level}

    def changed(self):
        """Returns the filters and levels of the tests that have changed: `None`, or what they are."""
        filters, levels = list(warnings.filters), self._found_levels()
        are_new = filters != self._filters or levels != self._levels
        self._filters, self._levels = filters, levels
        first = self._first_levels.items()
        return (tuple(filters), dict(levels.items() - first)) if are_new else None

    def set(self, filters, levels):
        """Makes filters and levels those of the tests."""
        warnings.resetwarnings()
        warnings.filters.extend(filters)
        for name in {*levels, *self._kept}:
            logger = logging.getLogger(name)
            if name in levels:
                self._kept.setdefault(name, logger.level)
                logger.setLevel(levels[name])
            else:
                logger.setLevel(self._kept.pop(name))
