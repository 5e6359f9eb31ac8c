//! One test binary for everything that crosses crates.
#![allow(missing_docs)]

mod bert_parity;
