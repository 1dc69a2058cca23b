//! Numbers of every kind: those that JSON can represent are the value, all others have their
//! `repr`.

use serde_json::{Value, json};

use super::dsl::{Row, completes, fails, raises, shows};
use super::error::error;

/// Parses JSON with all of its digits.
fn exactly(json: &str) -> Value {
    serde_json::from_str(json).expect("it is JSON")
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        completes("1 + 1", 2, "2"),
        completes("True", true, "True"),
        completes("True + True", 2, "2"),
        completes(
            "-(2 ** 63), 2 ** 64 - 1",
            json!([-9223372036854775808_i64, 18446744073709551615_u64]),
            "(-9223372036854775808, 18446744073709551615)",
        ),
        completes("2 ** 64", exactly("18446744073709551616"), "18446744073709551616"),
        completes("-(2 ** 63) - 1", exactly("-9223372036854775809"), "-9223372036854775809"),
        completes(
            "[1, 10 ** 30]",
            exactly("[1, 1000000000000000000000000000000]"),
            "[1, 1000000000000000000000000000000]",
        ),
        shows("10 ** 5000", "<unprintable int: ValueError>"),
        raises(
            "str(10 ** 5000)",
            "ValueError",
            "Exceeds the limit (4300 digits) for integer string conversion; use \
             sys.set_int_max_str_digits() to increase the limit",
        ),
        completes(
            "10 ** 100 % 7, pow(3, -1, 7), len(str(2 ** 10_000))",
            json!([4, 5, 3011]),
            "(4, 5, 3011)",
        ),
        completes(
            "0xff, 0o17, 0b11, 1_000, int('١٢')",
            json!([255, 15, 3, 1000, 12]),
            "(255, 15, 3, 1000, 12)",
        ),
        completes("7 // -2, 7 % -2, divmod(-7, 2)", json!([-4, -1, [-4, 1]]), "(-4, -1, (-4, 1))"),
        completes("0.1 + 0.2", 0.30000000000000004, "0.30000000000000004"),
        completes(
            "sum([0.1] * 10), 5e-324, 1e16, 1.7976931348623157e308",
            json!([1.0, 5e-324, 1e+16, 1.7976931348623157e+308]),
            "(1.0, 5e-324, 1e+16, 1.7976931348623157e+308)",
        ),
        completes("-0.0", -0.0, "-0.0"),
        shows("float('nan')", "nan"),
        shows("float('inf')", "inf"),
        shows("-float('inf')", "-inf"),
        shows("{'a': [1.0, float('nan')]}", "{'a': [1.0, nan]}"),
        completes(
            "x = float('nan')\n[x == x, x in [x], 1e308 * 10 == float('inf')]",
            json!([false, true, true]),
            "[False, True, True]",
        ),
        completes(
            "round(2.5), round(3.5), round(-0.5), round(2.675, 2)",
            json!([2, 4, 0, 2.67]),
            "(2, 4, 0, 2.67)",
        ),
        completes(
            "(0.1).as_integer_ratio(), (0.1).hex()",
            json!([[3602879701896397_i64, 36028797018963968_i64], "0x1.999999999999ap-4"]),
            "((3602879701896397, 36028797018963968), '0x1.999999999999ap-4')",
        ),
        shows("1j * 1j", "(-1+0j)"),
        shows("from decimal import Decimal\nDecimal('0.1') + Decimal('0.2')", "Decimal('0.3')"),
        shows(
            "from decimal import Decimal\nDecimal(1) / Decimal(3)",
            "Decimal('0.3333333333333333333333333333')",
        ),
        shows(
            "
            from decimal import Decimal
            [Decimal('NaN'), Decimal('-Infinity'), Decimal('1E+3')]
            ",
            "[Decimal('NaN'), Decimal('-Infinity'), Decimal('1E+3')]",
        ),
        completes(
            "
            from decimal import ROUND_HALF_UP, Decimal
            str(Decimal('2.675').quantize(Decimal('0.01'), ROUND_HALF_UP))
            ",
            "2.68",
            "'2.68'",
        ),
        fails(
            "from decimal import Decimal\nDecimal(1) / 0",
            error("decimal.DivisionByZero", "‹*›").anywhere(),
        )
        .ending("\ndecimal.DivisionByZero: ‹*›\n"),
        fails(
            "from decimal import Decimal\nDecimal('x')",
            error("decimal.InvalidOperation", "‹*›").anywhere(),
        )
        .ending("\ndecimal.InvalidOperation: ‹*›\n"),
        shows("from fractions import Fraction\nFraction(1, 3) + Fraction('1/6')", "Fraction(1, 2)"),
        completes(
            "
            import math
            [math.isqrt(10 ** 20), math.comb(5, 2), math.fsum([0.1] * 10), math.gcd(12, 18)]
            ",
            json!([10000000000_i64, 10, 1.0, 6]),
            "[10000000000, 10, 1.0, 6]",
        ),
        completes(
            "
            import statistics
            statistics.median([3, 1, 2]), statistics.mean([1, 2])
            ",
            json!([2, 1.5]),
            "(2, 1.5)",
        ),
    ]
}
