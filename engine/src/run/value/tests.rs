//! Values, their constructors, and their way between host and guest.

use proptest::prelude::*;
use serde_json::json;

use super::reply::parsed;
use super::request::encoded;
use super::*;

fn strings(texts: &[Option<&str>]) -> Column {
    texts.iter().copied().collect()
}

#[test]
fn types_of_items_are_those_of_numpy() {
    for (dtype, bytes) in [
        ("|b1", 1),
        ("|i1", 1),
        ("<u8", 8),
        ("<f2", 2),
        ("<c16", 16),
        ("<U5", 20),
        ("|S3", 3),
        ("<M8[ns]", 8),
        ("<m8[D]", 8),
    ] {
        assert_eq!(dtype::item_bytes(dtype), Some(bytes), "{dtype}");
    }
    for dtype in [
        "",
        "<",
        "<f",
        "f8",
        ">f8",
        "=f8",
        "<f16",
        "<f08",
        "<f+8",
        "<i1",
        "|i8",
        "|O",
        "|V8",
        "<U0",
        "<U-1",
        "<U",
        "<M8",
        "<M8[]",
        "<M8[25s]",
        "<M8[ns",
        "<M8[ns]]",
        "<f8[ns]",
        "<b1",
        "<U18446744073709551615",
        "\u{e4}f8",
        "<\u{e4}8",
    ] {
        assert_eq!(dtype::item_bytes(dtype), None, "{dtype}");
    }
}

#[test]
fn arrays_have_as_many_bytes_as_their_shape() {
    assert!(Array::new("<f8", [2, 3], [0; 48]).is_ok());
    assert!(Array::new("<f8", [], [0; 8]).is_ok());
    assert!(Array::new("<f8", [0, 3], []).is_ok());
    for (dtype, shape, bytes) in [
        ("<f8", vec![2, 3], 47),
        ("<f8", vec![2, 3], 0),
        ("<f8", vec![], 0),
        ("<f8", vec![usize::MAX, 8], 64),
        ("<f8", vec![usize::MAX / 4 + 1, 2], 0),
        ("<f8", vec![0, usize::MAX, usize::MAX], 0),
        ("<f8", vec![0, usize::MAX / 8], 0),
        ("|O", vec![1], 8),
    ] {
        assert!(Array::new(dtype, shape.clone(), vec![0; bytes]).is_err(), "{dtype} {shape:?}");
    }
    assert_eq!(Array::new("|b1", [1; 33], [0]), Err(InvalidValue::Dimensions));
}

#[test]
fn items_of_rust_go_in_and_out() {
    assert_eq!(Array::from_slice(&[true, false]).data(), [1, 0]);
    assert_eq!(Array::from_slice(&[true, false]).to_vec(), Some(vec![true, false]));
    assert_eq!(Array::from_slice(&[-1_i32]).data(), [0xff; 4]);
    assert_eq!(Array::from_slice(&[1.5_f32]).to_vec::<f64>(), None);
    let array = Array::from_slice(&[1_i64, 2, 3, 4]).reshape([2, 2]).unwrap();
    assert_eq!((array.shape(), array.to_vec()), (&[2, 2][..], Some(vec![1_i64, 2, 3, 4])));
    assert!(array.reshape([5]).is_err());
}

#[test]
fn frames_have_columns_of_one_length() {
    let numbers = Column::from(Array::from_slice(&[1, 2]));
    let frame = Frame::new([("a", numbers.clone()), ("b", strings(&[Some("x"), None]))]).unwrap();
    assert_eq!(frame.column("a").unwrap().to_vec::<i32>(), Some(vec![1, 2]));
    assert!(frame.clone().with_index(None, numbers.clone()).is_ok());
    assert!(frame.with_index(None, strings(&[None])).is_err());
    assert!(Frame::new([("a", numbers.clone()), ("a", numbers.clone())]).is_err());
    assert!(Frame::new([("a", numbers), ("b", strings(&[]))]).is_err());
    let square = Array::from_slice(&[1]).reshape([1, 1]).unwrap();
    assert!(Frame::new([("a", Column::from(square))]).is_err());
    assert!(Frame::new(Vec::<(String, Column)>::new()).is_ok());
}

#[test]
fn a_guest_reads_what_it_is_sent() {
    let read = |value: Value| as_python_reads(&encoded(&value).encode());
    let json = json!({"a": [1, -2.5, null, true, u64::MAX, i64::MIN], "b": "\u{e4}"});
    assert_eq!(read(json.clone().into()), json!(["plain", json]));
    assert_eq!(read(vec![0, 255].into()), json!(["plain", [0, 255]]));
    let array = Array::from_slice(&[1_u8, 2]).reshape([2, 1]).unwrap();
    assert_eq!(read(array.into()), json!(["array", "|u1", [2, 1], [1, 2]]));
    let texts = strings(&[Some("\u{e4}"), None, Some("")]);
    let index = Array::from_slice(&[7_u8, 8, 9]).into();
    let frame = Frame::new([("t", texts)]).unwrap().with_index(Some("n".to_owned()), index);
    let expected = json!([
        "frame",
        "n",
        ["array", "|u1", [3], [7, 8, 9]],
        [["t", ["strings", [2, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0], [195, 164]]]],
    ]);
    assert_eq!(read(frame.unwrap().into()), expected);
}

#[test]
fn what_a_guest_sends_becomes_a_value() {
    assert_eq!(parsed(json!({"kind": "bytes"}), &[b"ab"], 2), Ok(Value::Bytes(b"ab".to_vec())));
    let array = json!({"kind": "array", "dtype": "<i2", "shape": [2]});
    let expected = Array::from_slice(&[1_i16, 2]);
    assert_eq!(parsed(array, &[&[1, 0, 2, 0]], 4), Ok(expected.into()));
    let frame = json!({
        "kind": "frame", "rows": 2, "index_name": "n", "index": {"kind": "strings"},
        "columns": [["a", {"kind": "array", "dtype": "|b1"}]],
    });
    let lengths = [1, 0, 0, 0, 255, 255, 255, 255];
    let buffers: [&[u8]; 3] = [&lengths, b"x", &[1, 0]];
    let expected = Frame::new([("a", Array::from_slice(&[true, false]).into())])
        .and_then(|frame| frame.with_index(Some("n".to_owned()), strings(&[Some("x"), None])));
    assert_eq!(parsed(frame.clone(), &buffers, 100), Ok(expected.unwrap().into()));
    // Its texts take 24 bytes each in memory.
    assert!(parsed(frame, &buffers, 40).is_err());
}

#[test]
fn descriptions_that_lie_are_refused() {
    let array = |dtype: &str, shape: serde_json::Value| json!({"kind": "array", "dtype": dtype, "shape": shape});
    let frame = |rows: u64, columns: serde_json::Value| json!({"kind": "frame", "rows": rows, "index_name": null, "index": null, "columns": columns});
    let texts = json!([["a", {"kind": "strings"}]]);
    let twice =
        json!([["a", {"kind": "array", "dtype": "|b1"}], ["a", {"kind": "array", "dtype": "|b1"}]]);
    for (description, buffers) in [
        (json!({"kind": "bytes"}), vec![]),
        (json!({"kind": "bytes"}), vec![&b"a"[..], b"b"]),
        (json!({"kind": "bytes", "more": 1}), vec![b"a"]),
        (json!({"kind": "other"}), vec![b"a"]),
        (json!([]), vec![b"a"]),
        (array("<f8", json!([2])), vec![&[0; 8]]),
        (array("<f8", json!([-1])), vec![&[0; 8]]),
        (array("<f8", json!([u64::MAX, 2])), vec![&[0; 8]]),
        (array("|O", json!([1])), vec![&[0; 8]]),
        (array("<U0", json!([u64::MAX])), vec![b""]),
        (array("|b1", json!(vec![1; 100])), vec![b"\x01"]),
        (array("|b1", json!([101])), vec![&[0; 101]]),
        (frame(1, texts.clone()), vec![b"\x02\0\0\0", b"a"]),
        (frame(1, texts.clone()), vec![b"\x01\0\0\0", b"ab"]),
        (frame(1, texts.clone()), vec![b"\x01\0\0\0", b"\xff"]),
        (frame(1, texts.clone()), vec![b"\xfe\xff\xff\xff", b""]),
        (frame(1, texts.clone()), vec![b"\x01\0\0\0\0", b"a"]),
        (frame(2, texts.clone()), vec![b"\x01\0\0\0\x01\0\0\0", "\u{e4}".as_bytes()]),
        (frame(u64::MAX, texts.clone()), vec![b"\x01\0\0\0", b"a"]),
        (frame(2, texts), vec![b"\x01\0\0\0", b"a"]),
        (frame(1, twice), vec![b"\x01", b"\x01"]),
        (frame(2, json!([["a", {"kind": "array", "dtype": "|b1"}]])), vec![b"\x01"]),
    ] {
        assert!(parsed(description.clone(), &buffers, 100).is_err(), "{description}");
    }
}

proptest! {
    #[test]
    fn only_the_length_of_the_shape_is_taken(
        shape in prop::collection::vec(0_usize..6, 0..5),
        dtype in prop::sample::select(vec!["|b1", "<i2", "<f8", "<U3", "<M8[ns]"]),
        off in -3_isize..4,
    ) {
        let bytes = shape.iter().product::<usize>() * dtype::item_bytes(dtype).unwrap();
        if let Some(given) = bytes.checked_add_signed(off) {
            let array = Array::new(dtype, shape, vec![0; given]);
            prop_assert_eq!(array.is_ok(), off == 0);
        }
    }

    #[test]
    fn any_shape_is_answered(shape in prop::collection::vec(any::<usize>(), 0..40)) {
        let _ = Array::new("<f8", shape, [0; 8]);
    }
}

#[test]
fn nested_json_counts_as_what_it_takes() {
    let nested = (0..100).fold(serde_json::json!(0), |value, _| serde_json::json!({ "": value }));
    assert!((60_000..70_000).contains(&Value::from(nested).bytes()));
    let flat = serde_json::json!(vec![0; 1000]);
    assert!((64_000..65_000).contains(&Value::from(flat).bytes()));
}

/// Returns how this machine's Python decodes the bytes; bytes appear as lists of numbers.
pub(crate) fn as_python_reads(encoded: &[u8]) -> serde_json::Value {
    let hex: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    let code = "import json, marshal, sys\n\
                value = marshal.loads(bytes.fromhex(sys.argv[1]))\n\
                print(json.dumps(value, default=list, allow_nan=False))";
    let output = std::process::Command::new("python3")
        .args(["-c", code, &hex])
        .output()
        .expect("python3 is installed; it also fetches the build");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut read = serde_json::from_slice(&output.stdout).unwrap();
    number::normalise(&mut read).unwrap();
    read
}
