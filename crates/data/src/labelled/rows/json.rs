//! The rows of a JSON document that is one list of objects, or an object with such a list under `data`.

use std::ops::Range;

/// Each item's first line, from 1, and its place in the text.
pub(super) type Items = Vec<(u64, Range<usize>)>;

/// The items of the list; none if the document has no such list.
///
/// # Errors
/// A text that is not JSON.
pub(super) fn items(text: &str) -> Result<Option<Items>, serde_json::Error> {
    // From here on brackets, commas and quotation marks tell the structure.
    serde_json::from_str::<serde::de::IgnoredAny>(text)?;
    let mut found: Option<Items> = None;
    // The list's depth, once it is open and until it is closed.
    let mut list = None;
    let (mut line, mut depth) = (1, 0);
    let mut item: Option<(u64, usize)> = None;
    let mut last_string = "";
    let mut bytes = text.bytes().enumerate();
    while let Some((place, byte)) = bytes.next() {
        if list == Some(depth) {
            if matches!(byte, b',' | b']')
                && let Some((line, start)) = item.take()
            {
                let end = start + text[start..place].trim_ascii_end().len();
                found.get_or_insert_default().push((line, start..end));
            } else if !byte.is_ascii_whitespace() && byte != b']' {
                item.get_or_insert((line, place));
            }
        }
        match byte {
            b'\n' => line += 1,
            b'"' => {
                let mut end = place;
                while let Some((place, byte)) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => {
                            end = place;
                            break;
                        }
                        _ => {}
                    }
                }
                last_string = &text[place + 1..end];
            }
            b'[' | b'{' => {
                depth += 1;
                let of_data = depth == 2 && last_string == "data" && text.trim_start().starts_with('{');
                if byte == b'[' && found.is_none() && list.is_none() && (depth == 1 || of_data) {
                    list = Some(depth);
                    found = Some(Vec::new());
                }
            }
            b']' | b'}' => {
                if list == Some(depth) {
                    list = None;
                }
                depth -= 1;
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<Vec<(u64, &str)>> {
        let items = items(text).unwrap()?;
        Some(items.into_iter().map(|(line, range)| (line, &text[range])).collect())
    }

    #[test]
    fn items_have_their_lines() {
        let list = "[\n {\"a\": [1, {\"b\": \"],\\\"\"}]},\n {\"a\":\n 2} , 3,\"x\", null\n]\n";
        let expected =
            [(2, r#"{"a": [1, {"b": "],\""}]}"#), (3, "{\"a\":\n 2}"), (4, "3"), (4, "\"x\""), (4, "null")];
        assert_eq!(found(list).unwrap(), expected);
        let of_data =
            "{\"version\": [5], \"x\": {\"data\": [6]}, \"data\": [{}, {\"data\": [7]}], \"data\": [8]}";
        assert_eq!(found(of_data).unwrap(), [(1, "{}"), (1, "{\"data\": [7]}")]);
    }

    #[test]
    fn documents_without_a_list_have_no_items() {
        for text in
            ["{}", "{\"a\": [1]}", "3", "\"data\"", "{\"data\": {\"data\": [1]}}", "{\"a\": \"data\"}"]
        {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(found(" [ ]"), Some(Vec::new()));
        assert!(items("[1,]").is_err() && items("[").is_err() && items("").is_err());
    }
}
