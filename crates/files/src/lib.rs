#![doc = include_str!("../README.md")]

mod atomic;
mod error;
mod regular;

pub use atomic::{PARTIAL, flush, flush_folder, replace, write_atomic};
pub use error::FileError;
pub use regular::{open, read, read_text};
