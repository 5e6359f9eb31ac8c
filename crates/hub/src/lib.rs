//! Models by name: from the Hugging Face hub, or its cache, to a local folder.
//!
//! The cache is the one that Python's `huggingface_hub` keeps, in its layout, which the crate [`hf_hub`] knows
//! along with the hub's addresses: what one has downloaded, the other finds. The bytes are fetched here: a
//! download goes on where it was interrupted, ends when the network stalls, and takes its place in the cache
//! when its length and hash are what the server announced, never before.
//!
//! ```no_run
//! use cloze_hub::{Hub, HubConfig};
//!
//! let hub = Hub::new(HubConfig::new("/var/cache/huggingface/hub"))?;
//! let model = hub.fetch(&"sentence-transformers/all-MiniLM-L6-v2".parse()?, &mut ())?;
//! println!("{}", model.folder.display());
//! # Ok::<(), cloze_hub::HubError>(())
//! ```

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
