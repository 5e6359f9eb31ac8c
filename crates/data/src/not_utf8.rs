//! The message for text that is not UTF-8.

use std::str::Utf8Error;

/// `not UTF-8 (byte 3 is 0xff)`, counted from 1, with a hint at what it may be: UTF-16 in a file's first line,
/// which spreadsheets write, or one of the encodings of one byte a letter, such as Windows-1252.
pub fn not_utf8(text: &[u8], error: Utf8Error, first: bool) -> String {
    let at = error.valid_up_to();
    let hint = match text {
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] if first => "; it looks like UTF-16: save it as UTF-8",
        // In UTF-8 a letter beyond ASCII has two bytes beyond it at least, in Windows-1252 one. At the end of a line it may also be
        // a part of a UTF-8 letter: then only what ends words counts, small letters and quotation marks.
        _ if text.get(at + 1).map_or(ends_words(text[at]), u8::is_ascii) => {
            "; it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8"
        }
        _ => "",
    };
    format!("not UTF-8 (byte {} is 0x{:02x}){hint}", at + 1, text[at])
}

/// Whether a byte beyond ASCII is a small letter but eth, or a mark, in Windows-1252.
fn ends_words(byte: u8) -> bool {
    matches!(byte, 0x80..=0xBF | 0xDF..=0xEF | 0xF1..=0xFD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_is_named_and_utf16_known() {
        let said = |bytes: &[u8], first| not_utf8(bytes, std::str::from_utf8(bytes).unwrap_err(), first);
        assert_eq!(said(b"ab\xFF\xC3", true), "not UTF-8 (byte 3 is 0xff)");
        assert_eq!(
            said(b"caf\xE9 noir", false),
            "not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8"
        );
        // A word at the end of a line.
        assert!(said(b"caf\xE9", false).ends_with("run iconv -f WINDOWS-1252 -t UTF-8"));
        // Half of a letter of UTF-8.
        assert_eq!(said(b"caf\xC3", false), "not UTF-8 (byte 4 is 0xc3)");
        for (mark, byte) in [(b"\xFF\xFE", "0xff"), (b"\xFE\xFF", "0xfe")] {
            let plain = format!("not UTF-8 (byte 1 is {byte})");
            assert_eq!(said(mark, false), plain);
            assert_eq!(said(mark, true), plain + "; it looks like UTF-16: save it as UTF-8");
        }
    }
}
