//! Attention as a picture that darkens what is under it.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// The opacity of a place without attention, from 0 to 255: the image is still seen below it.
const DARKEST: f32 = 216.0;

/// What each PNG file begins with.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// A PNG file of black points, one for each place and the more opaque the less attention it has: not at all at the largest
/// share, [`DARKEST`] without attention. Shares are finite and not negative, in rows of `columns`.
pub(super) fn png(shares: &[f32], columns: usize) -> Vec<u8> {
    let largest = shares.iter().copied().fold(0.0, f32::max);
    let opacity = |share: f32| match largest > 0.0 {
        true => (DARKEST * (1.0 - share / largest)).round() as u8,
        false => DARKEST as u8,
    };
    let mut lines = Vec::with_capacity(2 * shares.len() + shares.len() / columns.max(1));
    let mut rows = 0_u32;
    for row in shares.chunks_exact(columns.max(1)) {
        // A line's filter, then grey and opacity of each point.
        lines.push(0);
        row.iter().for_each(|share| lines.extend([0, opacity(*share)]));
        rows += 1;
    }
    let columns = u32::try_from(columns).expect("a row is in memory");
    let mut header = [columns.to_be_bytes(), rows.to_be_bytes()].concat();
    // 8 bits each, grey with opacity, and the one compression, filtering and order of lines.
    header.extend([8, 4, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    for (kind, bytes) in [(b"IHDR", header), (b"IDAT", deflated(&lines)), (b"IEND", Vec::new())] {
        push(&mut file, kind, &bytes);
    }
    file
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).expect("a vector takes all bytes");
    encoder.finish().expect("a vector takes all bytes")
}

/// Appends a chunk: its length, its kind, its bytes and the checksum of kind and bytes.
fn push(file: &mut Vec<u8>, kind: &[u8; 4], bytes: &[u8]) {
    let mut sum = Crc::new();
    sum.update(kind);
    sum.update(bytes);
    file.extend((bytes.len() as u32).to_be_bytes());
    file.extend(kind);
    file.extend(bytes);
    file.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// The kinds and bytes of a file's chunks.
    fn chunks(file: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut rest = file.strip_prefix(&SIGNATURE).unwrap();
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            chunks.push((String::from_utf8(rest[4..8].to_vec()).unwrap(), rest[8..8 + len].to_vec()));
            let mut sum = Crc::new();
            sum.update(&rest[4..8 + len]);
            assert_eq!(rest[8 + len..12 + len], sum.sum().to_be_bytes());
            rest = &rest[12 + len..];
        }
        chunks
    }

    #[test]
    fn places_are_the_darker_the_less_attention_they_have() {
        let file = png(&[0.0, 0.4, 0.2, 0.1, 0.3, 0.0], 3);
        let chunks = chunks(&file);
        let kinds: Vec<&str> = chunks.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["IHDR", "IDAT", "IEND"]);
        assert_eq!(chunks[0].1, [0, 0, 0, 3, 0, 0, 0, 2, 8, 4, 0, 0, 0]);
        let mut lines = Vec::new();
        ZlibDecoder::new(&chunks[1].1[..]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines, [0, 0, 216, 0, 0, 0, 108, 0, 0, 162, 0, 54, 0, 216]);
    }

    #[test]
    fn no_attention_at_all_is_dark() {
        let chunks = chunks(&png(&[0.0; 4], 2));
        let mut lines = Vec::new();
        ZlibDecoder::new(&chunks[1].1[..]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines, [0, 0, 216, 0, 216, 0, 0, 216, 0, 216]);
    }
}
