//! Dates and times.

use serde_json::json;

use super::dsl::{Row, completes, raises, shows};
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        shows(
            "
            import datetime
            datetime.date(2026, 2, 28) + datetime.timedelta(days=1)
            ",
            "datetime.date(2026, 3, 1)",
        ),
        shows(
            "
            import datetime
            datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
            ",
            "datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)",
        ),
        shows(
            "import datetime\n-datetime.timedelta(seconds=1)",
            "datetime.timedelta(days=-1, seconds=86399)",
        ),
        completes(
            "
            import datetime
            datetime.datetime.fromisoformat('2026-01-02T03:04:05+02:00').isoformat()
            ",
            "2026-01-02T03:04:05+02:00",
            "'2026-01-02T03:04:05+02:00'",
        ),
        completes(
            "import datetime as d\nd.datetime.fromtimestamp(0, d.UTC).strftime('%a %d \
             %b %Y %H:%M'), d.date(2024, 12, 30).isocalendar()[:2]",
            json!(["Thu 01 Jan 1970 00:00", [2025, 1]]),
            "('Thu 01 Jan 1970 00:00', (2025, 1))",
        ),
        raises(
            "import datetime\ndatetime.date(2026, 2, 29)",
            "ValueError",
            "day 29 must be in range 1..28 for month 2 in year 2026",
        )
        .needs(Need::Since(15)),
        raises(
            "import datetime\ndatetime.date.fromisoformat('x')",
            "ValueError",
            "Invalid isoformat string: 'x'",
        ),
        raises(
            "
            import datetime as d
            d.datetime(2026, 1, 1) - d.datetime(2026, 1, 1, tzinfo=d.UTC)
            ",
            "TypeError",
            "can't subtract offset-naive and offset-aware datetimes",
        ),
        completes(
            "
            import time
            time.strftime('%Y-%m-%d', time.gmtime(0)), time.tzname[0]
            ",
            json!(["1970-01-01", "UTC"]),
            "('1970-01-01', 'UTC')",
        ),
    ]
}
