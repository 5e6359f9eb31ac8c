use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ureq::Proxy;

/// Where models come from, and where they are kept.
#[derive(Clone)]
pub struct HubConfig {
    /// The cache's folder, `HF_HOME/hub` for Python's `huggingface_hub`.
    pub cache: PathBuf,
    /// The server, without a slash at the end.
    pub endpoint: String,
    /// What the server knows the user by: for private and gated models.
    pub token: Option<String>,
    /// Ask no server, take what the cache has.
    pub offline: bool,
    /// The way to the server.
    pub proxy: Option<Proxy>,
    /// How often an interrupted download is taken up again.
    pub retries: u32,
    /// How long to wait before the first time, twice as long before each other.
    pub retry_delay: Duration,
    /// How long the server may say nothing, and how long it may take to reach it.
    pub timeout: Duration,
    /// Bytes a second that are to arrive at least, in the mean of each `slow_for`.
    pub least_rate: u64,
    /// How long the server may send less.
    pub slow_for: Duration,
}

impl HubConfig {
    /// The public hub, with this cache, without a token.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            endpoint: "https://huggingface.co".into(),
            token: None,
            offline: false,
            proxy: None,
            retries: 5,
            retry_delay: Duration::from_millis(500),
            timeout: Duration::from_secs(15),
            least_rate: 1000,
            slow_for: Duration::from_secs(60),
        }
    }
}

/// Without the token, which is a secret, and the proxy, which may have one.
impl fmt::Debug for HubConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubConfig")
            .field("cache", &self.cache)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("offline", &self.offline)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let config = HubConfig { token: Some("hf_secret".into()), ..HubConfig::new("cache") };
        let shown = format!("{config:?}");
        assert!(shown.contains("huggingface.co") && !shown.contains("secret"), "{shown}");
    }
}
