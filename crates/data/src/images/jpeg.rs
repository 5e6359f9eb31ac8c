//! What a JPEG says before its pixels are decoded (ITU-T T.81, annex B).

/// The parts of a JPEG that its decoder does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JpegSummary {
    /// Colour components, of which CMYK has four; 0 without a frame.
    pub components: u8,
    /// Whether Adobe's marker is there: then the components of CMYK are inverted.
    pub adobe: bool,
    /// Whether the image's end is marked. The decoder fills what is missing with grey.
    pub ends: bool,
}

impl JpegSummary {
    /// Walks the segments of the file.
    pub fn of(bytes: &[u8]) -> Self {
        let mut summary = Self::default();
        // After the start of the image.
        let mut at = 2;
        while let Some(marker) = next_marker(bytes, &mut at) {
            match marker {
                0xD9 => {
                    summary.ends = true;
                    return summary;
                }
                // Without a length: the start, restarts, and one for private use.
                0xD8 | 0xD0..=0xD7 | 0x01 => continue,
                _ => {}
            }
            let Some(length) = bytes.get(at..at + 2) else { return summary };
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let body = bytes.get(at + 2..at + length.max(2)).unwrap_or_default();
            match marker {
                // A frame, not a table that shares its range.
                0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                    summary.components = body.get(5).copied().unwrap_or_default();
                }
                0xEE if body.starts_with(b"Adobe") => summary.adobe = true,
                _ => {}
            }
            at += length.max(2);
        }
        summary
    }
}

/// The next marker at or after `at`, which becomes the place behind it. Compressed data is skipped: within it, a byte
/// 255 is followed by 0.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        let skipped = bytes.get(*at..)?.iter().position(|byte| *byte == 0xFF)?;
        let filled = bytes[*at + skipped..].iter().position(|byte| *byte != 0xFF)?;
        *at += skipped + filled + 1;
        match bytes[*at - 1] {
            0 => {}
            marker => return Some(marker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_walked() {
        // A start, Adobe's segment, a comment with an end in it, a frame of 4 components, data with a stuffed byte.
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xEE, 0, 7];
        bytes.extend(b"Adobe");
        bytes.extend([0xFF, 0xFE, 0, 4, 0xFF, 0xD9, 0xFF, 0xC0, 0, 8, 8, 0, 1, 0, 1, 4]);
        bytes.extend([0xFF, 0xDA, 0, 2, 1, 2, 0xFF, 0, 3, 0xFF, 0xD0, 4]);
        let cut = JpegSummary { components: 4, adobe: true, ends: false };
        assert_eq!(JpegSummary::of(&bytes), cut);
        bytes.extend([0xFF, 0xFF, 0xD9]);
        assert_eq!(JpegSummary::of(&bytes), JpegSummary { ends: true, ..cut });
        for n in 0..bytes.len() {
            assert!(!JpegSummary::of(&bytes[..n]).ends);
        }
    }
}
