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
    /// The access token, for private and gated models.
    pub token: Option<String>,
    /// Never contact the server; use only the cache.
    pub offline: bool,
    /// The proxy to reach the server.
    pub proxy: Option<Proxy>,
    /// Maximum retries of an interrupted download.
    pub retries: u32,
    /// The delay before the first retry; doubled for each further one.
    pub retry_delay: Duration,
    /// The connection timeout, and the timeout for a silent server.
    pub timeout: Duration,
    /// Minimum download rate in bytes per second, averaged over each `slow_for`.
    pub least_rate: u64,
    /// How long the rate may be lower.
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

/// Omits the token, which is secret, and the proxy, which may contain a secret.
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
