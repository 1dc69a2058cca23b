//! Texts and bytes, including those that UTF-8 can't represent.

use serde_json::json;

use super::dsl::{Row, completes, shows};
use crate::needs::Need;

pub(super) fn rows() -> Vec<Row> {
    vec![
        completes("'ä' * 2", "ää", "'ää'"),
        completes("'\\0\\t\\n\\x1b'", "\0\t\n\u{1b}", "'\\x00\\t\\n\\x1b'"),
        completes("'it\\'s'", "it's", "\"it's\""),
        completes("len('👩‍👩‍👧'), 'ß'.upper(), 'ǆ'.title()", json!([5, "SS", "ǅ"]), "(5, 'SS', 'ǅ')"),
        completes(
            "import unicodedata\n'e\\u0301' == 'é', unicodedata.normalize('NFC', \
             'e\\u0301') == 'é', unicodedata.name('€')",
            json!([false, true, "EURO SIGN"]),
            "(False, True, 'EURO SIGN')",
        ),
        shows("'a\\ud800'", "'a\\ud800'"),
        shows("'\\U0001f600\\udcff'", "'😀\\udcff'"),
        shows("{'\\udc80': 1}", "{'\\udc80': 1}"),
        completes("'\\U0001f600'", "😀", "'😀'"),
        completes(
            "'%s %r %5.2f|%-4d|' % ('a', 'b', 1 / 3, 7)",
            "a 'b'  0.33|7   |",
            "\"a 'b'  0.33|7   |\"",
        ),
        completes(
            "f'{1 / 3:.3f} {255:#x} {1e6:,.0f} {\"x\":>3} {2!r:>3} {3.0=}'",
            "0.333 0xff 1,000,000   x   2 3.0=3.0",
            "'0.333 0xff 1,000,000   x   2 3.0=3.0'",
        ),
        shows(
            "name = 'x'\nt'a{name!r:>5}'",
            "Template(strings=('a', ''), interpolations=(Interpolation('x', 'name', \
             'r', '>5'),))",
        )
        .needs(Need::Since(14)),
        completes(
            "'a,b,,c'.split(','), ' x '.strip(), 'x'.join('abc')",
            json!([["a", "b", "", "c"], "x", "axbxc"]),
            "(['a', 'b', '', 'c'], 'x', 'axbxc')",
        ),
        completes(
            "import re\nre.findall(r'(\\w)=(\\d+)', 'a=1, b=22')",
            json!([["a", "1"], ["b", "22"]]),
            "[('a', '1'), ('b', '22')]",
        ),
        shows("import re\nre.match('b*', 'bbc')", "<re.Match object; span=(0, 2), match='bb'>"),
        shows("b'\\x00a\\xff'", "b'\\x00a\\xff'").data(b"\0a\xff".to_vec()),
        shows("b''", "b''").data(Vec::new()),
        shows("bytearray(b'ab')", "bytearray(b'ab')").data(b"ab".to_vec()),
        shows("memoryview(b'abc')[::2]", "<memory at 0x‹*›>").data(b"ac".to_vec()),
        shows("[b'a']", "[b'a']"),
        shows("'é'.encode('utf-16-le') + 'é'.encode('latin-1')", "b'\\xe9\\x00\\xe9'")
            .data(b"\xe9\0\xe9".to_vec()),
        completes(
            "b'\\xff'.decode(errors='replace'), b'\\xc3\\xa4'.decode(), bytes([1, \
             255]).hex()",
            json!(["\u{fffd}", "ä", "01ff"]),
            "('\u{fffd}', 'ä', '01ff')",
        ),
        completes(
            "
            import base64, zlib
            base64.b64encode(b'\\0\\xff').decode(), zlib.crc32(b'abc')
            ",
            json!(["AP8=", 891568578]),
            "('AP8=', 891568578)",
        ),
        completes("import hashlib\nhashlib.sha256(b'').hexdigest()[:8]", "e3b0c442", "'e3b0c442'"),
        completes(
            "import json\njson.loads('{\"a\": [1, 2.5, null, \"\\\\u00e4\"]}')",
            json!({"a": [1, 2.5, null, "ä"]}),
            "{'a': [1, 2.5, None, 'ä']}",
        ),
    ]
}
