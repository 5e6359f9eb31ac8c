//! The message for text that is not UTF-8.

use std::str::Utf8Error;

/// `not UTF-8 (byte 3 is 0xff)`, counted from 1; for a file's first line also a hint about UTF-16, which
/// spreadsheets write.
pub fn not_utf8(text: &[u8], error: Utf8Error, first: bool) -> String {
    let at = error.valid_up_to();
    let hint = match text {
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] if first => "; it looks like UTF-16: save it as UTF-8",
        _ => "",
    };
    format!("not UTF-8 (byte {} is 0x{:02x}){hint}", at + 1, text[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_is_named_and_utf16_known() {
        let said = |bytes: &[u8], first| not_utf8(bytes, std::str::from_utf8(bytes).unwrap_err(), first);
        assert_eq!(said(b"ab\xFFc", true), "not UTF-8 (byte 3 is 0xff)");
        assert_eq!(said(b"caf\xC3", false), "not UTF-8 (byte 4 is 0xc3)");
        for (mark, byte) in [(b"\xFF\xFE", "0xff"), (b"\xFE\xFF", "0xfe")] {
            let plain = format!("not UTF-8 (byte 1 is {byte})");
            assert_eq!(said(mark, false), plain);
            assert_eq!(said(mark, true), plain + "; it looks like UTF-16: save it as UTF-8");
        }
    }
}
