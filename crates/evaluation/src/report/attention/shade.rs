//! Attention as a picture that darkens what is under it.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// The opacity of a place without attention, from 0 to 255: the image is still seen below it.
const DARKEST: f32 = 216.0;

/// What each PNG file begins with.
const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// Points of a smooth picture for each row and column of places. The browser interpolates between them.
const POINTS: usize = 4;

/// A grid of more rows or columns is smooth enough as it is.
const FINE: usize = 32;

/// A PNG file of black points, the more opaque the less attention a place has: not at all at the largest share, [`DARKEST`]
/// without attention. Shares are finite and not negative, in rows of `columns`, at least one.
///
/// A picture that is not smooth has a point for each place. A smooth one has several, interpolated by cubic B-splines as
/// Xu et al. blur theirs, so that no edges of places are seen; a single place spreads over its neighbours.
pub(super) fn png(shares: &[f32], columns: usize, is_smooth: bool) -> Vec<u8> {
    let rows = shares.len() / columns;
    match is_smooth && rows.max(columns) <= FINE {
        true => {
            let wide = smoothed(shares, columns, 1);
            file(&smoothed(&wide, POINTS * columns, POINTS * columns), POINTS * columns)
        }
        false => file(shares, columns),
    }
}

/// Numbers in rows of `columns`, with [`POINTS`] for each along an axis: the columns if `stride` is 1, the rows if it is
/// `columns`.
fn smoothed(numbers: &[f32], columns: usize, stride: usize) -> Vec<f32> {
    let length = if stride == 1 { columns } else { numbers.len() / columns };
    let long = POINTS * length;
    let mut smooth = vec![0.0; POINTS * numbers.len()];
    for (to, value) in smooth.iter_mut().enumerate() {
        // The line's first number, and the point along it.
        let (first, point) = match stride {
            1 => (to / long * length, to % long),
            _ => (to % stride, to / stride),
        };
        // Where the point is among the places, whose centres are at whole numbers.
        let at = (point as f32 + 0.5) / POINTS as f32 - 0.5;
        let (place, t) = (at.floor(), at - at.floor());
        let weights = [
            (1.0 - t).powi(3),
            3.0 * t.powi(3) - 6.0 * t.powi(2) + 4.0,
            -3.0 * t.powi(3) + 3.0 * t.powi(2) + 3.0 * t + 1.0,
            t.powi(3),
        ];
        *value = (-1..)
            .zip(weights)
            .map(|(offset, weight)| {
                // Beyond the border, what is at the border.
                let near = (place as isize + offset).clamp(0, length as isize - 1) as usize;
                weight / 6.0 * numbers[first + stride * near]
            })
            .sum();
    }
    smooth
}

/// A PNG file of a point for each number.
fn file(shares: &[f32], columns: usize) -> Vec<u8> {
    let largest = shares.iter().copied().fold(0.0, f32::max);
    let opacity = |share: f32| match largest > 0.0 {
        true => (DARKEST * (1.0 - share / largest)).round() as u8,
        false => DARKEST as u8,
    };
    let mut lines = Vec::new();
    for row in shares.chunks_exact(columns) {
        // A line's filter, then grey and opacity of each point as differences from those of the point before.
        lines.push(1);
        let mut before = 0;
        for share in row {
            let opacity = opacity(*share);
            lines.extend([0, opacity.wrapping_sub(before)]);
            before = opacity;
        }
    }
    let size =
        [columns, shares.len() / columns].map(|n| u32::try_from(n).expect("places that are in memory"));
    let mut header = size.map(u32::to_be_bytes).concat();
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

    /// The opacities of a file's points, in lines.
    fn opacities(file: &[u8]) -> Vec<Vec<u8>> {
        let chunks = chunks(file);
        let kinds: Vec<&str> = chunks.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["IHDR", "IDAT", "IEND"]);
        let header = &chunks[0].1;
        let [width, height] =
            [0, 4].map(|at| u32::from_be_bytes(header[at..at + 4].try_into().unwrap()) as usize);
        assert_eq!(header[8..], [8, 4, 0, 0, 0]);
        let mut lines = Vec::new();
        ZlibDecoder::new(&chunks[1].1[..]).read_to_end(&mut lines).unwrap();
        assert_eq!(lines.len(), height * (1 + 2 * width));
        let line = |line: &[u8]| {
            assert_eq!(line[0], 1);
            let mut opacity = 0_u8;
            let point = |point: &[u8]| {
                assert_eq!(point[0], 0);
                opacity = opacity.wrapping_add(point[1]);
                opacity
            };
            line[1..].chunks(2).map(point).collect()
        };
        lines.chunks(1 + 2 * width).map(line).collect()
    }

    #[test]
    fn places_are_the_darker_the_less_attention_they_have() {
        let file = png(&[0.0, 0.4, 0.2, 0.1, 0.3, 0.0], 3, false);
        assert_eq!(opacities(&file), [[216, 0, 108], [162, 54, 216]]);
        assert_eq!(opacities(&png(&[0.0; 4], 2, false)), [[216, 216], [216, 216]]);
        assert_eq!(opacities(&png(&[0.0; 4], 2, true)), [[216; 8]; 8]);
    }

    #[test]
    fn a_smooth_picture_is_brightest_where_attention_is() {
        let mut shares = [0.0; 7 * 9];
        shares[2 * 9 + 6] = 1.0;
        let points = opacities(&png(&shares, 9, true));
        assert_eq!((points.len(), points[0].len()), (28, 36));
        // The place's four points in each direction, of which the middle two are brightest.
        for (row, line) in points.iter().enumerate() {
            for (column, opacity) in line.iter().enumerate() {
                let is_middle = (9..11).contains(&row) && (25..27).contains(&column);
                assert_eq!(*opacity == 0, is_middle, "row {row}, column {column}: {opacity}");
                // Two places away there is nothing.
                let is_near = (2..18).contains(&row) && (18..34).contains(&column);
                assert!(is_near || *opacity == 216, "row {row}, column {column}: {opacity}");
            }
        }
        let symmetric = |line: &[u8]| (0..8).all(|at| line[18 + at] == line[33 - at]);
        assert!(symmetric(&points[10]) && points[9] == points[10] && points[8] == points[11]);
        // What is even stays even, to the borders.
        assert_eq!(opacities(&png(&[1.0 / 63.0; 63], 9, true)), vec![vec![0; 36]; 28]);
    }

    #[test]
    fn a_fine_grid_has_a_point_for_each_place() {
        let points = opacities(&png(&vec![0.1; 40 * 33], 33, true));
        assert_eq!((points.len(), points[0].len()), (40, 33));
    }
}
