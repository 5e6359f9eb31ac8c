//! Numbers in few bytes: rounded to 8 bits, deflated, in base64.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::inspection::{Head, Neurons};

/// Bytes deflated in the zlib format (RFC 1950), in base64: what the page's script unpacks.
pub(super) fn packed(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).expect("a vector takes all bytes");
    BASE64_STANDARD.encode(encoder.finish().expect("a vector takes all bytes"))
}

/// A head's shares, and what a byte is worth.
///
/// A byte counts steps of `√(largest share) / 255`: at most 1/255, and finer for a head that spreads its attention, whose
/// shares would be 0 otherwise. Columns come one after another, `[keys · queries]`, because most columns resemble
/// themselves and so deflate better than rows.
pub(super) struct Shares {
    pub step: f32,
    pub bytes: Vec<u8>,
}

impl Shares {
    pub(super) fn of(head: &Head, queries: usize, keys: usize) -> Self {
        let largest = head.shares.iter().copied().fold(0.0, f32::max);
        let step = if largest > 0.0 { largest.sqrt() / 255.0 } else { 1.0 };
        let mut bytes = vec![0; queries * keys];
        for (query, row) in head.shares.chunks_exact(keys.max(1)).enumerate() {
            for (key, share) in row.iter().enumerate() {
                bytes[key * queries + query] = (share / step).round() as u8;
            }
        }
        Self { step, bytes }
    }
}

/// A head's queries, keys and positions: one byte a number, and what a byte is worth.
pub(super) struct Rounded {
    /// Bytes of queries and keys are signed steps.
    pub queries: f32,
    pub keys: f32,
    /// The value of byte 0 and the step of what positions add.
    pub positions: Option<(f32, f32)>,
    pub bytes: Vec<u8>,
}

impl Rounded {
    pub(super) fn of(neurons: &Neurons) -> Self {
        let mut bytes = Vec::new();
        let queries = signed(&neurons.queries, &mut bytes);
        let keys = signed(&neurons.keys, &mut bytes);
        let positions = neurons.positions.as_ref().map(|values| {
            // A hidden key may get −∞, which is no part of the scale.
            let finite = || values.iter().copied().filter(|value| value.is_finite());
            let (low, high) =
                (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
            let low = if low.is_finite() { low } else { 0.0 };
            let step = if high > low { (high - low) / 255.0 } else { 1.0 };
            bytes.extend(values.iter().map(|value| ((value - low) / step).round() as u8));
            (low, step)
        });
        Self { queries, keys, positions, bytes }
    }
}

/// Appends signed bytes, and returns the step.
fn signed(values: &[f32], bytes: &mut Vec<u8>) -> f32 {
    let largest = values.iter().map(|value| value.abs()).fold(0.0, f32::max);
    let step = if largest > 0.0 { largest / 127.0 } else { 1.0 };
    bytes.extend(values.iter().map(|value| ((value / step).round() as i8).cast_unsigned()));
    step
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn head(shares: &[f32]) -> Head {
        Head { shares: shares.to_vec(), entropy: 0.0, distance: None, special: 0.0, neurons: None }
    }

    #[test]
    fn shares_are_within_half_a_step_in_columns() {
        let shares = [0.2, 0.8, 0.5, 0.5, 0.001, 0.999];
        let Shares { step, bytes } = Shares::of(&head(&shares), 3, 2);
        assert!(step <= 1.0 / 255.0);
        for (at, share) in shares.iter().enumerate() {
            let (query, key) = (at / 2, at % 2);
            let read = f32::from(bytes[key * 3 + query]) * step;
            assert!((read - share).abs() <= step / 2.0 + 1e-6, "{share} is read as {read}");
        }
    }

    #[test]
    fn an_even_spread_over_many_keys_is_not_lost() {
        let n = 1_024;
        let Shares { step, bytes } = Shares::of(&head(&vec![1.0 / n as f32; n]), 1, n);
        let read = f32::from(bytes[0]) * step * n as f32;
        assert!((read - 1.0).abs() < 0.1, "the row's sum is {read}");
    }

    #[test]
    fn neurons_are_signed_and_positions_have_an_offset() {
        let neurons = Neurons {
            width: 2,
            scale: 1.0,
            queries: vec![1.0, -2.0],
            keys: vec![0.0, 0.5, -0.25, 0.0],
            positions: Some(vec![-3.0, f32::NEG_INFINITY]),
        };
        let Rounded { queries, keys, positions, bytes } = Rounded::of(&neurons);
        let read = |at: usize, step: f32| f32::from(bytes[at].cast_signed()) * step;
        assert_eq!((read(1, queries), read(3, keys)), (-2.0, 0.5));
        assert!((read(0, queries) - 1.0).abs() <= queries / 2.0);
        let (low, _) = positions.unwrap();
        assert_eq!((low, bytes[6], bytes[7]), (-3.0, 0, 0));
        assert_eq!(bytes.len(), 8);
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let packed = BASE64_STANDARD.decode(packed(b"shares")).unwrap();
        let mut read = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"shares");
    }
}
