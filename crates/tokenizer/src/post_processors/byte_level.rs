//! Byte-level offsets without the white space that the pieces carry.

use crate::{Encoding, pre_tokenizers::byte_to_char};

/// Moves offsets past leading and before trailing white space of each piece, also in the overflow. A
/// single leading space of the first piece is left if the pre-tokenizer put it there.
pub(super) fn trim_offsets(encoding: &mut Encoding, add_prefix_space: bool) {
    for overflow in &mut encoding.overflowing {
        trim_offsets(overflow, add_prefix_space);
    }
    let is_space = |c: &char| *c == byte_to_char(b' ') || c.is_whitespace();
    let pieces = encoding.tokens.iter().zip(&mut encoding.offsets);
    for (i, (token, (start, end))) in pieces.enumerate() {
        let mut leading = token.chars().take_while(is_space).count();
        let trailing = token.chars().rev().take_while(is_space).count();
        if leading > 0 {
            let first = i == 0 || *start == 0;
            if first && add_prefix_space && leading == 1 {
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
        trim_offsets(&mut encoding, true);
        assert_eq!(encoding.offsets, [(0, 1), (3, 4)]);
    }
}
