//! Zstandard frames put together of blocks (RFC 8878).

/// A frame's magic number, and a header that promises neither size nor checksum; a window of 1 MB.
const HEAD: [u8; 6] = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x50];
/// The longest block.
const BLOCK: usize = 128 << 10;

fn block(last: bool, kind: u32, size: usize) -> [u8; 3] {
    let header = u32::from(last) | kind << 1 | (size as u32) << 3;
    [header as u8, (header >> 8) as u8, (header >> 16) as u8]
}

/// The bytes as they are.
pub fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut frame = HEAD.to_vec();
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
    for (i, bytes) in blocks.iter().enumerate() {
        frame.extend(block(i + 1 == blocks.len(), 0, bytes.len()));
        frame.extend(*bytes);
    }
    if blocks.is_empty() {
        frame.extend(block(true, 0, 0));
    }
    frame
}

/// One byte so many times, in four bytes for 128 KB.
pub fn bomb(byte: u8, bytes: usize) -> Vec<u8> {
    let blocks = bytes.div_ceil(BLOCK);
    let mut frame = HEAD.to_vec();
    for i in 0..blocks {
        frame.extend(block(i + 1 == blocks, 1, BLOCK));
        frame.push(byte);
    }
    frame
}

/// The first block of a frame as a frame of its own: real compressed data, but little of it.
pub fn first_block(frame: &[u8]) -> Option<Vec<u8>> {
    let descriptor = *frame.get(4)?;
    let single = descriptor & 0x20 != 0;
    let size = [if single { 1 } else { 0 }, 2, 4, 8][usize::from(descriptor >> 6)];
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let at = 5 + usize::from(!single) + dictionary + size;
    let header = frame.get(at..at + 3)?;
    let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let (kind, size) = (header >> 1 & 3, (header >> 3) as usize);
    let body = frame.get(at + 3..at + 3 + size)?;
    Some([&HEAD[..], &block(true, kind, size), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_blocks() {
        assert_eq!(stored(b"abc"), [&HEAD[..], &[0x19, 0, 0], b"abc"].concat());
        assert_eq!(bomb(b'x', 3 * BLOCK).len(), HEAD.len() + 12);
        let frame = stored(&[7; BLOCK + 1]);
        assert_eq!(first_block(&frame).unwrap(), stored(&[7; BLOCK]));
    }
}
