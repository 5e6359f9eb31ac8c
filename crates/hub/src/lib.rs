#![doc = include_str!("../README.md")]
//!
//! # The cache
//! The cache is shared with Python's `huggingface_hub`, in the same layout, provided by the crate [`hf_hub`]
//! along with the hub's URLs: each finds what the other has downloaded. Downloads are implemented here: they
//! resume where interrupted, end when the network stalls, and enter the cache only once length and hash match
//! what the server announced.

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
