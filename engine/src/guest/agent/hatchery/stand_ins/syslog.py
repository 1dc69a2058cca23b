"""A system log that nobody reads. The numbers are Linux's."""

LEVELS = "EMERG ALERT CRIT ERR WARNING NOTICE INFO DEBUG".split()
FACILITIES = "KERN USER MAIL DAEMON AUTH SYSLOG LPR NEWS UUCP CRON AUTHPRIV".split()
globals().update({f"LOG_{name}": number for number, name in enumerate(LEVELS)})
globals().update({f"LOG_{name}": number << 3 for number, name in enumerate(FACILITIES)})
globals().update({f"LOG_LOCAL{number}": 16 + number << 3 for number in range(8)})
LOG_PID, LOG_CONS, LOG_ODELAY, LOG_NDELAY, LOG_NOWAIT, LOG_PERROR = 1, 2, 4, 8, 16, 32


def syslog(priority, message=None, /):
    pass


def openlog(ident="", logoption=0, facility=LOG_USER):
    pass


def closelog():
    pass


def setlogmask(mask, /):
    return 0xFF


def LOG_MASK(pri, /):
    return 1 << pri


def LOG_UPTO(pri, /):
    return (1 << pri + 1) - 1
