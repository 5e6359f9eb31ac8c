use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, HubError>;

/// Errors in finding or downloading a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Text that is not a model's name.
    #[error("{text:?} is not a model's name: {reason}")]
    Name {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The server has no such model, or does not show it without a token or to the given one.
    #[error("{endpoint} has no model `{name}`{}", if *token { ", or this token may not see it" } else { ", or shows it only with a token" })]
    NotFound {
        /// The model.
        name: String,
        /// The server.
        endpoint: String,
        /// Whether a token was given.
        token: bool,
    },

    /// The model has no such revision.
    #[error("model `{name}` has no revision `{revision}`")]
    NoRevision {
        /// The model.
        name: String,
        /// The branch, tag or commit.
        revision: String,
    },

    /// The server knows the model but refuses access to it.
    #[error("model `{name}` is gated or private: {}", if *token {
        "this token is not allowed to read it; ask for access on its page"
    } else {
        "ask for access on its page, and give a token (HF_TOKEN)"
    })]
    Denied {
        /// The model.
        name: String,
        /// Whether a token was given.
        token: bool,
    },

    /// The server rejected the token.
    #[error("{endpoint} does not accept the token")]
    BadToken {
        /// The server.
        endpoint: String,
    },

    /// A model that is missing from the cache or incomplete there, in offline mode.
    #[error("{} has no `{file}` of model `{name}`, and offline mode asks no server", cache.display())]
    NotCached {
        /// The model, with its revision.
        name: String,
        /// What is missing.
        file: String,
        /// The cache's folder.
        cache: PathBuf,
    },

    /// A model without a usable configuration or usable weights.
    #[error("model `{name}` has no {missing}")]
    NoModel {
        /// The model, with its revision.
        name: String,
        /// What is missing.
        missing: &'static str,
    },

    /// A server that could not be reached, or whose answer was cut off.
    #[error("cannot reach {url}: {reason}")]
    Network {
        /// The requested URL.
        url: String,
        /// What happened.
        reason: String,
    },

    /// A server that is too slow.
    #[error(
        "{url}: only {bytes} bytes came in {seconds} seconds, expected {least} a second at least; what came is kept, and goes on the next time"
    )]
    Slow {
        /// The requested URL.
        url: String,
        /// Bytes received.
        bytes: u64,
        /// The period, in seconds.
        seconds: u64,
        /// The minimum bytes per second.
        least: u64,
    },

    /// A server that answered with an error status.
    #[error("{url}: the server answers with status {status}")]
    Status {
        /// The requested URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },

    /// An invalid response for a model hub.
    #[error("{url}: not the answer of a model hub: {reason}")]
    Protocol {
        /// The requested URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A download that differs from what the server announced; it is discarded.
    #[error("{url}: downloaded {found}, the server announced {expected}")]
    Corrupt {
        /// The requested URL.
        url: String,
        /// Length or hash as announced.
        expected: String,
        /// Length or hash as received.
        found: String,
    },

    /// A file or folder could not be read, written or created.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Adds the action and the file.
pub(crate) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> HubError + 'a {
    move |source| HubError::Io { action, path: path.into(), source }
}
