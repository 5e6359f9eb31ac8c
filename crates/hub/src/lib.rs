#![doc = include_str!("../README.md")]
//!
//! # The cache
//! The cache is the one that Python's `huggingface_hub` keeps, in its layout, which the crate [`hf_hub`] knows along with
//! the hub's addresses: what one has downloaded, the other finds. The bytes are fetched here: a download goes on where it
//! was interrupted, ends when the network stalls, and takes its place in the cache when its length and hash are what the
//! server announced, never before.

mod cache;
mod config;
mod error;
mod fetch;
mod files;
mod name;
mod remote;

pub use config::HubConfig;
pub use error::{HubError, Result};
pub use fetch::{Hub, Model, Progress};
pub use name::{ModelName, Source};
pub use ureq::Proxy;
