//! Damage to files: of bytes, of lines of text, of JSON and TOML by what they mean.

mod bytes;
mod json;
mod text;

pub use bytes::bytes;
pub use json::{json, toml};
pub use text::{ODD, text};

use super::random::Random;

/// Numbers at the bounds of types and of reason, as JSON and TOML both write them.
pub const EXTREMES: [&str; 30] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "1000000000",
    "-1000000000",
    "1000000000000",
    "0.5",
    "-0.5",
    "1.5",
    "-0.0",
    "1e-300",
    "1e300",
    "-1e300",
    "0.1",
];

/// One of the [`EXTREMES`].
pub fn extreme(random: &mut Random) -> &'static str {
    EXTREMES[random.below(EXTREMES.len())]
}

/// What `mutate` makes until it is something else than `seed`; after many attempts, `otherwise`.
fn until_different<T: PartialEq>(seed: &T, otherwise: T, mut mutate: impl FnMut() -> T) -> T {
    (0..20).map(|_| mutate()).find(|mutated| mutated != seed).unwrap_or(otherwise)
}
