//! Integration tests across the crates: see `it/`.

/// The README's programs compile as they are written there.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
