//! Byte-level offsets without the white space that the pieces carry.

use crate::{Encoding, OffsetUnit, pre_tokenizers::byte_to_char};

/// Moves offsets past leading and before trailing white space of each piece, including the overflow. A single
/// leading space of the first piece is kept if the pre-tokenizer added it. `unit` is the unit of the offsets.
pub(super) fn trim_offsets(encoding: &mut Encoding, add_prefix_space: bool, unit: OffsetUnit) {
    for overflow in &mut encoding.overflowing {
        trim_offsets(overflow, add_prefix_space, unit);
    }
    let space = byte_to_char(b' ');
    let is_space = |c: &char| *c == space || c.is_whitespace();
    let width = |c: char| match unit {
        OffsetUnit::Bytes if c != space => c.len_utf8(),
        _ => 1,
    };
    let pieces = encoding.tokens.iter().zip(&mut encoding.offsets);
    for (i, (token, (start, end))) in pieces.enumerate() {
        let spaces = token.chars().take_while(is_space).count();
        let mut leading: usize = token.chars().take(spaces).map(width).sum();
        let trailing: usize = token.chars().rev().take_while(is_space).map(width).sum();
        if leading > 0 {
            let first = i == 0 || *start == 0;
            if first && add_prefix_space && spaces == 1 {
                leading = 0;
            }
            *start = (*start + leading).min(*end);
        }
        if trailing > 0 && *end >= trailing {
            *end = (*end - trailing).max(*start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_are_trimmed() {
        let mut encoding = Encoding::default();
        encoding.push(0, "Ġa", (0, 1), Some(0), 0);
        encoding.push(1, "ĠĠbĠ", (1, 5), Some(1), 0);
        trim_offsets(&mut encoding, true, OffsetUnit::Bytes);
        assert_eq!(encoding.offsets, [(0, 1), (3, 4)]);
    }

    /// An added token may have taken any white space with it, of up to three bytes a character.
    #[test]
    fn bytes_are_not_characters() {
        for (unit, given, expected) in
            [(OffsetUnit::Bytes, (1, 10), (7, 10)), (OffsetUnit::Chars, (1, 6), (3, 6))]
        {
            let mut encoding = Encoding::default();
            encoding.push(0, "\u{3000}\u{2003}<m>", given, Some(0), 0);
            trim_offsets(&mut encoding, false, unit);
            assert_eq!(encoding.offsets, [expected]);
        }
    }
}
