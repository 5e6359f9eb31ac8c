//! Integration tests across the crates: see `it/`.
