"""What a candidate warns of and logs, in an interpreter where the tests listen for it.

The tests' side tells its filters of warnings and its levels of loggers; the candidate's side tells what
passes them, which the tests' side then warns of and logs itself.
"""

import logging
import re
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

    def own_filters(self):
        """Returns the filters of the candidate that have changed, without those of its own classes."""
        filters = list(warnings.filters)
        if filters == self._filters:
            return None
        self._filters = filters
        return tuple(one for one in filters if one[2].__module__ not in _OWN)

    def filter(self, filters):
        """Takes the filters of the candidate, which natively are those of the tests, too."""
        warnings.resetwarnings()
        warnings.filters.extend(one for one in filters if _is_filter(one))
        self._filters = list(warnings.filters)

    def set(self, filters, levels):
        """Makes filters and levels those of the tests."""
        warnings.resetwarnings()
        warnings.filters.extend(filters)
        self._filters = list(warnings.filters)
        for name in {*levels, *self._kept}:
            logger = logging.getLogger(name)
            if name in levels:
                self._kept.setdefault(name, logger.level)
                logger.setLevel(levels[name])
            else:
                logger.setLevel(self._kept.pop(name))


def _is_filter(one):
    """Returns whether this is a filter of warnings of a class that both sides have."""
    if type(one) is not tuple or len(one) != 5:
        return False
    action, text, category, module, line = one
    are_patterns = all(it is None or type(it) in (str, re.Pattern) for it in (text, module))
    is_plain = type(action) is str and type(line) is int and are_patterns
    return is_plain and type(category) is type and issubclass(category, Warning)
