"""Tests the stand-ins for machine code of packages, in `python/packages/stand_ins`.

What is expected is what the packages themselves give.
"""

import datetime
import decimal
import importlib.util
import pathlib
import sys
import types
import unittest
import uuid

FOLDER = pathlib.Path(__file__).parents[2] / "python/packages/stand_ins"
ROWS = {
    'orjson': (
        ("dumps([1, -0.0, 1e16, 1e-5, 1.5e-7, float('nan'), True, None, 2**64 - 1])", "b'[1,-0.0,1e+16,0.00001,1.5e-7,null,true,null,18446744073709551615]'"),
        ('dumps(\'é\\u2028\\0\\x7f"\\\\/\')', 'b\'"\\xc3\\xa9\\xe2\\x80\\xa8\\\\u0000\\x7f\\\\"\\\\\\\\/"\''),
        ("dumps('\\ud800')", 'TypeError: str is not valid UTF-8: surrogates not allowed'),
        ('dumps(2**64)', 'TypeError: Integer exceeds 64-bit range'),
        ("dumps({'b': 1, 'a': ()}, option=OPT_SORT_KEYS | OPT_INDENT_2)", 'b\'{\\n  "a": [],\\n  "b": 1\\n}\''),
        ('dumps({1: 2, None: 3, 1.5: 4, uuid.UUID(int=1): 5, datetime.date(2020, 1, 2): 6}, option=OPT_NON_STR_KEYS)', 'b\'{"1":2,"null":3,"1.5":4,"00000000-0000-0000-0000-000000000001":5,"2020-01-02":6}\''),
        ('dumps({1: 2})', 'TypeError: Dict key must be str'),
        ('dumps({(): 2}, option=OPT_NON_STR_KEYS)', 'TypeError: Dict key must a type serializable with OPT_NON_STR_KEYS'),
        ("dumps({'é': 1, 'z': 2}, option=OPT_SORT_KEYS | OPT_APPEND_NEWLINE)", 'b\'{"z":2,"\\xc3\\xa9":1}\\n\''),
        ('dumps(2**53, option=OPT_STRICT_INTEGER)', 'TypeError: Integer exceeds 53-bit range'),
        ('dumps(datetime.datetime(2020, 1, 2, 3, 4, 5, 6))', 'b\'"2020-01-02T03:04:05.000006"\''),
        ('dumps(datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc), option=OPT_UTC_Z)', 'b\'"2020-01-02T00:00:00Z"\''),
        ('dumps(datetime.datetime(2020, 1, 2, microsecond=5), option=OPT_NAIVE_UTC | OPT_OMIT_MICROSECONDS)', 'b\'"2020-01-02T00:00:00+00:00"\''),
        ('dumps(datetime.time(1, tzinfo=datetime.timezone.utc))', 'TypeError: datetime.time must not have tzinfo set'),
        ('dumps(datetime.date(2020, 1, 2), option=OPT_PASSTHROUGH_DATETIME)', 'TypeError: Type is not JSON serializable: datetime.date'),
        ('dumps(datetime.timedelta(1), str)', 'b\'"1 day, 0:00:00"\''),
        ('dumps({1}, default=list)', "b'[1]'"),
        ('dumps({1}, default=lambda x: x)', 'TypeError: default serializer exceeds recursion limit'),
        ('dumps({1})', 'TypeError: Type is not JSON serializable: set'),
        ('dumps(decimal.Decimal(1))', 'TypeError: Type is not JSON serializable: decimal.Decimal'),
        ('dumps(1, option=4096)', 'TypeError: Invalid opts'),
        ('dumps()', "TypeError: dumps() missing 1 required positional argument: 'obj'"),
        ("dumps(Fragment(b'[1]'))", "b'[1]'"),
        ('dumps(bytearray())', 'TypeError: Type is not JSON serializable: bytearray'),
        ('loads(\'[1, -0.0, 1e2, "\\\\ud83d\\\\ude00", null, true, 18446744073709551616]\')', "[1, -0.0, 100.0, '😀', None, True, 1.8446744073709552e+19]"),
        ('loads(b\'{"a": {"a": []}}\')', "{'a': {'a': []}}"),
        ("loads('')", 'JSONDecodeError: Input is a zero-length, empty document: line 1 column 1 (char 0)'),
        ("loads(' ')", 'JSONDecodeError: input data is empty: line 1 column 1 (char 0)'),
        ("loads('[1,]')", 'JSONDecodeError: trailing comma is not allowed: line 1 column 3 (char 2)'),
        ('loads(\'{"a" 1}\')', "JSONDecodeError: unexpected character, expected ':' after key: line 1 column 6 (char 5)"),
        ('loads(\'{"a": 1,}\')', 'JSONDecodeError: trailing comma is not allowed: line 1 column 8 (char 7)'),
        ("loads('[1 2]')", "JSONDecodeError: unexpected character, expected ',' or ']': line 1 column 4 (char 3)"),
        ("loads('nan')", "JSONDecodeError: invalid literal, expected 'null': line 1 column 1 (char 0)"),
        ("loads('01')", 'JSONDecodeError: number with leading zero is not allowed: line 1 column 1 (char 0)'),
        ("loads('1.')", 'JSONDecodeError: unexpected end of data: line 1 column 3 (char 2)'),
        ("loads('+1')", 'JSONDecodeError: no digit after sign: line 1 column 1 (char 0)'),
        ("loads('1e999')", 'JSONDecodeError: number is infinity when parsed as double: line 1 column 1 (char 0)'),
        ('loads(\'["a]\')', 'JSONDecodeError: unexpected end of data: line 1 column 5 (char 4)'),
        ('loads(\'"\\\\x"\')', 'JSONDecodeError: invalid escaped sequence in string: line 1 column 2 (char 1)'),
        ('loads(\'"\\\\ud800"\')', 'JSONDecodeError: no low surrogate in string: line 1 column 2 (char 1)'),
        ('loads(\'"\\\\ud800\\\\u0041"\')', 'JSONDecodeError: invalid low surrogate in string: line 1 column 2 (char 1)'),
        ('loads(\'"\\t"\')', 'JSONDecodeError: unexpected control character in string: line 1 column 2 (char 1)'),
        ("loads('1 2')", 'JSONDecodeError: unexpected content after document: line 1 column 3 (char 2)'),
        ("loads('{1: 2}')", 'JSONDecodeError: unexpected character, expected a string key: line 1 column 2 (char 1)'),
        ('loads(b\'"\\xff"\')', 'JSONDecodeError: str is not valid UTF-8: surrogates not allowed: line 1 column 1 (char 0)'),
        ('loads(1)', 'JSONDecodeError: Input must be bytes, bytearray, memoryview, or str: line 1 column 1 (char 0)'),
        ("loads('\\ufeff1')", 'JSONDecodeError: UTF-8 byte order mark (BOM) is not supported: line 1 column 1 (char 0)'),
        ("loads('[' * 1025 + ']' * 1025).x", 'JSONDecodeError: depth limit exceeded: line 1 column 1026 (char 1025)'),
    ),
    'ujson': (
        ("dumps([1, -0.0, 1e16, 1e-7, float('nan'), True, None, 2**70])", "'[1,-0.0,1e+16,1e-7,NaN,true,null,1180591620717411303424]'"),
        ("dumps('é/<\\x7f\\u2028\\\\')", '\'"\\\\u00e9\\\\/<\\x7f\\\\u2028\\\\\\\\"\''),
        ("dumps('é/<', ensure_ascii=False, escape_forward_slashes=False, encode_html_chars=True)", '\'"é/\\\\u003c"\''),
        ("dumps({1: 2, None: 3, True: 4, b'x': 5, (1,): 6})", '\'{"1":4,"null":3,"x":5,"(1,)":6}\''),
        ("dumps({'b': [1, []], 'a': {}}, indent=2, sort_keys=True)", '\'{\\n  "a": {},\\n  "b": [\\n    1,\\n    []\\n  ]\\n}\''),
        ("dumps([1, {'a': 2}], separators=(', ', ': '))", '\'[1, {"a": 2}]\''),
        ("dumps(b'x')", "TypeError: b'x' is not JSON serializable"),
        ("dumps(b'x', reject_bytes=False)", '\'"x"\''),
        ('dumps({1})', 'TypeError: {1} is not JSON serializable'),
        ('dumps({1}, default=list)', "'[1]'"),
        ("dumps(float('inf'), allow_nan=False)", 'OverflowError: Invalid value when encoding double'),
        ("dumps(decimal.Decimal('1.50'))", "'1.5'"),
        ("dumps([1], separators=(',',))", 'ValueError: expected tuple of size 2 as separator'),
        ('loads(\'[1, 01, 1., -, "\\\\ud800", 1e400, NaN]\')', "[1, 1, 1.0, 0, '\\ud800', inf, nan]"),
        ("loads('[1,]')", 'JSONDecodeError: Unexpected character found when decoding array value (1)'),
        ("loads('[1 2]')", 'JSONDecodeError: Unexpected character found when decoding array value (2)'),
        ('loads(\'{"a": 1,}\')', 'JSONDecodeError: Unexpected character in found when decoding object value'),
        ('loads(\'{"a" 1}\')', "JSONDecodeError: No ':' found when decoding object value"),
        ("loads('{1: 2}')", "JSONDecodeError: Key name of object must be 'string' when decoding 'object'"),
        ("loads('nul')", "JSONDecodeError: Unexpected character found when decoding 'null'"),
        ("loads('1 1')", 'JSONDecodeError: Trailing data'),
        ('loads(\'"a\')', 'JSONDecodeError: Unmatched \'"\' when decoding \'string\''),
        ('loads(\'"\\\\x"\')', "JSONDecodeError: Unrecognized escape sequence when decoding 'string'"),
        ('loads(\'"\\\\u12"\')', "JSONDecodeError: Unexpected character in unicode escape sequence when decoding 'string'"),
        ("loads('')", 'JSONDecodeError: Expected object or value'),
        ('loads(None)', 'TypeError: Expected string, bytes, or bytearray'),
        ('loads(b\'"\\xff"\')', "JSONDecodeError: Invalid UTF-8 sequence length when decoding 'string'"),
        ("loads('[' * 1025)", 'JSONDecodeError: Reached object decoding depth limit'),
    ),
    'blake3': (
        ("blake3(b'').hexdigest()", "'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262'"),
        ("blake3(b'abc').digest(5, seek=70)", "b'\\xd2v\\x18\\x1c\\xcb'"),
        ('blake3(bytes(2500)).hexdigest()', "'a0d07e4c21490294e6c126e750e315639465f616974594f378f9b671702c2c92'"),
        ("blake3(b'x', key=bytes(range(32))).hexdigest()", "'27531c3f2aaf17450508c44c3013d45d6a926f8f0a4353f301806e0301507560'"),
        ("blake3(b'x', derive_key_context='c').hexdigest()", "'75a53d814695d224ad5af80b718df73b0fbbff199406ea75ea739b51f4a3362f'"),
        ("blake3(b'', key=b'1')", 'ValueError: expected a 32-byte key, found 1'),
        ("blake3('x')", "TypeError: a bytes-like object is required, not 'str'"),
    ),
    'rpds': (
        ("(HashTrieMap(a=1).insert('a', 2), HashTrieMap({1: 2}).keys(), HashTrieMap({1: 2}).values(), HashTrieMap({1: 2}).items())", "(HashTrieMap({'a': 2}), keys_view({1}), values_view([2]), items_view([(1, 2)]))"),
        ("HashTrieMap([('a', 1)]).remove('b')", "KeyError: 'b'"),
        ("HashTrieMap({'a': 1}).discard('b') == HashTrieMap(a=1)", 'True'),
        ("HashTrieMap.convert({1: 2}).update({1: 3}, b=4).get('b')", '4'),
        ('hash(HashTrieMap(a=[]))', "TypeError: Unhashable type in HashTrieMap of key 'a': []"),
        ("sorted(HashTrieMap(a=1).keys() | {'b'})", "['a', 'b']"),
        ('HashTrieSet([1]) | HashTrieSet([1])', 'HashTrieSet({1})'),
        ('HashTrieSet([1, 2]) >= {1}', 'True'),
        ('HashTrieSet([1]).remove(2)', 'KeyError: 2'),
        ('(List(1, 2).push_front(0), List([1, 2]).rest.first, list(reversed(List([1, 2]))))', '(List([0, 1, 2]), 2, [2, 1])'),
        ('List().first', 'IndexError: empty list has no first element'),
        ('List({1})', "TypeError: 'set' object is not reversible"),
        ('(Stack(1, 2).push(3), Stack([1, 2]).peek(), list(Stack([1, 2])))', '(Stack([1, 2, 3]), 2, [2, 1])'),
        ('Stack().pop()', 'IndexError: popped an empty stack'),
        ('(Queue(1, 2).enqueue(3).dequeue(), Queue().is_empty())', '(Queue([2, 3]), True)'),
        ('hash(List(1, []))', 'TypeError: Unhashable type at 1 element in List: []'),
        ('Queue().peek()', 'IndexError: peeked an empty queue'),
    ),
}
# AES by the key 0, 1, 2 …, in hexadecimal: key bytes, mode, number of bytes 7, and the result.
CIPHERS = (
    (16, "ECB", 0, "954f64f2e4e86e9eee82d20216684899"),
    (16, "CBC", 20, "f98ff1bc085e983a689e485bfacc7d1d07254992770977c32b4917fc43c935d8"),
    (24, "CBC", 16, "32de314f8d9b1e998399361f68744553012443dfed4bda7309253e1ed413af7a"),
    (32, "CTR", 40, "ee9ee31a4ba077dd5480167c5a8850e9f59707b12d4e98d7aef49d6dda297087f75a71a94dbe98e2aefe933940ca3e35"),
    (16, "CTR", 3, "3b43183fc30a8f2e69daaf94035db61e"),
    (32, "GCM", 30, "09bbb2d9b22b84ba0fafae321f2b969ed54451542f8667288799b484c2f85f541b81824e982caed73b07ffac5f1f9e16"),
    (24, "GCM", 0, "cb13029ba75d343c93525236e7da35d6448db6fe91e19d5376d35b11b61e0f23"),
)


def stand_in(name):
    spec = importlib.util.spec_from_file_location(f"stand_in_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class StandInTest(unittest.TestCase):
    maxDiff = None

    def test_expressions_give_what_the_packages_give(self):
        for name, rows in ROWS.items():
            scope = {**vars(stand_in(name)), "datetime": datetime, "decimal": decimal, "uuid": uuid}
            for expression, expected in rows:
                with self.subTest(f"{name}.{expression}"):
                    try:
                        said = repr(eval(expression, scope))
                    except Exception as error:
                        said = f"{type(error).__name__}: {error}"
                    self.assertEqual(expected, said)

    def test_aes_and_padding_give_what_cryptography_gives(self):
        machine_code = stand_in("cryptography")
        of = types.SimpleNamespace
        for key_bytes, name, count, expected in CIPHERS:
            algorithm = of(name="AES", key=bytes(range(key_bytes)))
            mode = of(name=name, initialization_vector=bytes(12 if name == "GCM" else 16), nonce=b"\xff" * 16,
                      tag=None, _min_tag_length=16)
            padder = machine_code.PKCS7PaddingContext(128)
            data = padder.update(b"\x07" * count) + padder.finalize()
            context = machine_code.create_encryption_ctx(algorithm, mode)
            text = context.update(data[:5]) + context.update(data[5:]) + context.finalize()
            with self.subTest(f"{key_bytes} {name} {count}"):
                self.assertEqual(expected, (text + getattr(context, "tag", b"")).hex())
                mode.tag = getattr(context, "tag", None)
                context = machine_code.create_decryption_ctx(algorithm, mode)
                unpadder = machine_code.PKCS7UnpaddingContext(128)
                back = context.update(text) + context.finalize()
                self.assertEqual(b"\x07" * count, unpadder.update(back) + unpadder.finalize())

    def test_what_cryptography_lacks_can_be_imported_and_is_an_error_when_it_is_called(self):
        errors = types.ModuleType("cryptography.exceptions")
        errors.UnsupportedAlgorithm = type("UnsupportedAlgorithm", (Exception,), {})
        sys.modules.update({"cryptography": types.ModuleType("cryptography"), "cryptography.exceptions": errors})
        self.addCleanup(lambda: [sys.modules.pop(name) for name in ("cryptography.exceptions", "cryptography")])
        machine_code = stand_in("cryptography")
        for lacking in (machine_code.openssl.rsa.generate_private_key, machine_code.x509.load_pem_x509_certificate):
            with self.assertRaisesRegex(errors.UnsupportedAlgorithm, "is machine code, which the sandbox can't run"):
                lacking()


if __name__ == "__main__":
    unittest.main()
