//! Bytes that stand as tokens, `<0x61>`, back to text.

/// The byte that a token stands for.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    // A sign would be read as part of the number.
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Runs of bytes become text, or one U+FFFD a byte where they are no UTF-8.
pub(super) fn decode(tokens: Vec<String>) -> Vec<String> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut bytes = Vec::new();
    let flush = |bytes: &mut Vec<u8>, out: &mut Vec<String>| {
        let run = std::mem::take(bytes);
        let length = run.len();
        match String::from_utf8(run) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => out.push(text),
            Err(_) => out.extend((0..length).map(|_| '\u{fffd}'.to_string())),
        }
    };
    for token in tokens {
        match byte(&token) {
            Some(byte) => bytes.push(byte),
            None => {
                flush(&mut bytes, &mut out);
                out.push(token);
            }
        }
    }
    flush(&mut bytes, &mut out);
    out
}
