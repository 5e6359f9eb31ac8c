//! Decodes byte tokens such as `<0x61>` to text.

/// The byte that a token stands for.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    // A sign would be read as part of the number.
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Runs of bytes become text. A run that is not UTF-8 becomes one U+FFFD per byte, as in the `tokenizers`
/// crate.
pub(super) fn decode(tokens: Vec<String>) -> Vec<String> {
    decode_runs(tokens, |run, out| {
        let length = run.len();
        match String::from_utf8(run) {
            Ok(text) => out.push(text),
            Err(_) => out.extend((0..length).map(|_| '\u{fffd}'.to_string())),
        }
    })
}

/// Runs of bytes become text. Of a run that is not UTF-8, only the invalid bytes become U+FFFD, as in
/// SentencePiece.
pub(super) fn decode_characters(tokens: Vec<String>) -> Vec<String> {
    decode_runs(tokens, |run, out| {
        let mut text = String::new();
        for chunk in run.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
        }
        out.push(text);
    })
}

fn decode_runs(tokens: Vec<String>, text: impl Fn(Vec<u8>, &mut Vec<String>)) -> Vec<String> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut bytes = Vec::new();
    let flush = |bytes: &mut Vec<u8>, out: &mut Vec<String>| {
        if !bytes.is_empty() {
            text(std::mem::take(bytes), out);
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
