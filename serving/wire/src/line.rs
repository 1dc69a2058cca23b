//! JSON as a line of text, which may end up on a terminal.

use serde_json::Value;

/// Returns JSON as one line, without the line's end. Characters that are legal in JSON but that
/// terminals may obey are escaped: DEL, and the C1 controls from U+0080 to U+009F.
///
/// ```
/// let value = serde_json::json!({ "shown": "\u{9b}2J" });
/// assert_eq!(wire::to_line(&value), r#"{"shown":"\u009b2J"}"#);
/// ```
pub fn to_line(value: &Value) -> String {
    let json = value.to_string();
    // In UTF-8, C1 controls begin with this byte.
    if !json.bytes().any(|byte| matches!(byte, 0x7f | 0xc2)) {
        return json;
    }
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}' => line.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => line.push(character),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_what_it_is_and_controls_nothing() {
        let value = serde_json::json!({ "a": "\u{9b}2J\u{7f}ä€©\n" });
        let line = to_line(&value);
        assert_eq!(line, r#"{"a":"\u009b2J\u007fä€©\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        assert_eq!(to_line(&serde_json::json!(["a", 1])), r#"["a",1]"#);
    }
}
