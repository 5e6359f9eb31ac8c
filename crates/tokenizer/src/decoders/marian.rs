//! Marian's pieces back to text.

use super::bytes;

/// Joins pieces: `▁` becomes a space, special tokens get a space after them, and the ends are
/// trimmed.
pub(super) fn decode(tokens: Vec<String>, special_tokens: &[String], byte_fallback: bool) -> String {
    let mut text = String::new();
    let mut run = Vec::new();
    for token in tokens {
        match special_tokens.contains(&token) {
            true => {
                text.push_str(&pieces(std::mem::take(&mut run), byte_fallback));
                text.push_str(&token);
                text.push(' ');
            }
            false => run.push(token),
        }
    }
    text.push_str(&pieces(run, byte_fallback));
    text.trim_matches(is_space).to_owned()
}

/// What Python's `str.strip` removes: white space, and the file, group, record and unit separators.
fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}

/// The text of pieces, without the first one's leading space.
fn pieces(run: Vec<String>, byte_fallback: bool) -> String {
    let run = if byte_fallback { bytes::decode_characters(run) } else { run };
    run.concat().trim_start_matches('▁').replace('▁', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_have_a_space_behind_them() {
        let run = |tokens: &[&str]| {
            let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
            decode(tokens, &["</s>".to_owned(), "<unk>".to_owned()], true)
        };
        assert_eq!(run(&["▁a", "b", "▁c", "</s>"]), "ab c</s>");
        assert_eq!(run(&["▁a", "<unk>", "b", "<unk>", "▁c"]), "a<unk> b<unk> c");
        assert_eq!(run(&["▁", "▁a", "<0xC3>", "<0xA9>", "▁"]), "aé");
        assert_eq!(run(&["<0xE2>", "<0x82>", "<0xC3>", "<0xA9>", "<0xC3>"]), "\u{fffd}\u{fffd}é\u{fffd}");
        assert_eq!(run(&[]), "");
    }
}
