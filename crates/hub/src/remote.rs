//! Requests to the server: a model's file list and its files.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Instant;

use hf_hub::api::RepoInfo;
use hf_hub::{Repo, RepoType};
use serde::Deserialize;
use serde_json::Value;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::cache::{is_commit, is_etag};
use crate::error::io;
use crate::{HubConfig, HubError, ModelName, Progress, Result};

/// Maximum length of a model description, in bytes.
const MAX_LISTING: u64 = 32 << 20;

/// Time limit of a model description, as a multiple of the timeout.
const LISTING_TIMEOUTS: u32 = 8;

/// Maximum redirects within the server.
const MAX_REDIRECTS: usize = 5;

/// A server, and how to ask it.
pub(crate) struct Remote<'a> {
    config: &'a HubConfig,
    agent: Agent,
}

/// A file's metadata announced by the server.
pub(crate) struct Announced {
    pub(crate) url: String,
    /// The file's version: the git hash for regular files, the content hash for large ones.
    pub(crate) etag: String,
    pub(crate) len: Option<u64>,
}

impl Announced {
    /// The blob's name in the cache. A version that is not a content hash may be shared with other files or
    /// commits, so these are added to the name.
    pub(crate) fn blob(&self, commit: &str, file: &str) -> String {
        let is_hex = self.etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match self.etag.len() {
            40 | 64 if is_hex => self.etag.clone(),
            _ => {
                let of = Sha1::new().chain_update(commit).chain_update([0]).chain_update(file).finalize();
                format!("{}-{}", self.etag, hex(&of))
            }
        }
    }
}

impl<'a> Remote<'a> {
    pub(crate) fn new(config: &'a HubConfig) -> Self {
        let timeout = Some(config.timeout);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .proxy(config.proxy.clone())
            .user_agent(concat!("cloze/", env!("CARGO_PKG_VERSION")))
            // Lengths and ranges are those of the files, not of something compressed.
            .accept_encoding("identity")
            .timeout_connect(timeout)
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .build()
            .into();
        Self { config, agent }
    }

    /// The commit of a model's revision, and its files.
    pub(crate) fn listing(&self, name: &ModelName) -> Result<(String, Vec<String>)> {
        let repo = Repo::with_revision(name.repo.clone(), RepoType::Model, name.revision.clone());
        let url = format!("{}/api/{}", self.config.endpoint, repo.api_url());
        let wrong = |reason: String| HubError::Protocol { url: url.clone(), reason };
        let mut response = self.persist(|| {
            let request = self.request(self.agent.get(&url)).config();
            let request = request.timeout_global(Some(self.config.timeout * LISTING_TIMEOUTS)).build();
            let response = request.call().map_err(|error| network(&url, error))?;
            self.accept(name, &url, response)
        })?;
        let text = response.body_mut().with_config().limit(MAX_LISTING).read_to_string();
        let text = text.map_err(|error| network(&url, error))?;
        let info: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        // Of a list, too, the library would make what it expects.
        let is_file = |file: &Value| file.as_object().is_some_and(|file| file.contains_key("rfilename"));
        let files = info.as_object().and_then(|info| info.get("siblings")?.as_array());
        if !files.is_some_and(|files| files.iter().all(is_file)) {
            return Err(wrong(
                "expected an object with a list of files, `siblings`, each with its `rfilename`".into(),
            ));
        }
        let info = RepoInfo::deserialize(info).map_err(|error| wrong(error.to_string()))?;
        if !is_commit(&info.sha) {
            return Err(wrong(format!("commit {:?}", info.sha)));
        }
        Ok((info.sha, info.siblings.into_iter().map(|file| file.rfilename).collect()))
    }

    /// Version and length of a file.
    pub(crate) fn announced(&self, name: &ModelName, commit: &str, file: &str) -> Result<Announced> {
        let repo = Repo::with_revision(name.repo.clone(), RepoType::Model, commit.into());
        let (endpoint, revision) = (&self.config.endpoint, repo.url_revision());
        let url = format!("{endpoint}/{}/resolve/{revision}/{}", repo.url(), escaped(file));
        let response = self.persist(|| self.accept(name, &url, self.head(&url)?))?;
        let wrong = |reason: String| HubError::Protocol { url: url.clone(), reason };
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        // Large files lie with another server, to which this one redirects: it says what they are all the same.
        let etag = header("x-linked-etag").or_else(|| header("etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_string();
        if !is_etag(&etag) {
            return Err(wrong(format!("version {etag:?} of the file")));
        }
        let own_len = || if response.status().is_success() { header("content-length") } else { None };
        let len = header("x-linked-size").or_else(own_len).and_then(|len| len.parse().ok());
        Ok(Announced { url, etag, len })
    }

    /// Downloads a file to `path`, resuming after existing bytes, and verifies it.
    pub(crate) fn download(
        &self,
        name: &ModelName,
        announced: &Announced,
        path: &Path,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut file =
            File::options().create(true).append(true).read(true).open(path).map_err(io("write", path))?;
        let length = |file: &File| file.metadata().map(|data| data.len()).map_err(io("read", path));
        // Bytes of an earlier time, or of before an interruption, may be another file's.
        let mut resumed = length(&file)? > 0;
        loop {
            let (mut tries, mut furthest) = (0, length(&file)?);
            while let Err(error) = self.attempt(name, announced, &mut file, path, progress) {
                // What gets on is not counted: a bad line may break off as often as it likes.
                let after = length(&file)?;
                tries = if after > furthest { 1 } else { tries + 1 };
                furthest = furthest.max(after);
                if !is_passing(&error) || tries > self.config.retries {
                    return Err(error);
                }
                resumed |= after > 0;
                thread::sleep(self.config.retry_delay * 2u32.saturating_pow(tries - 1));
            }
            match damage(announced, path)? {
                None => return file.sync_all().map_err(io("write", path)),
                Some(_) if resumed => {
                    resumed = false;
                    file.set_len(0).map_err(io("write", path))?;
                }
                Some((expected, found)) => {
                    std::fs::remove_file(path).map_err(io("remove", path))?;
                    return Err(HubError::Corrupt { url: announced.url.clone(), expected, found });
                }
            }
        }
    }

    fn attempt(
        &self,
        name: &ModelName,
        announced: &Announced,
        file: &mut File,
        path: &Path,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let url = &announced.url;
        let mut have = file.metadata().map_err(io("read", path))?.len();
        if announced.len.is_some_and(|len| have > len) {
            file.set_len(0).map_err(io("write", path))?;
            have = 0;
        }
        if announced.len == Some(have) {
            return Ok(());
        }
        let mut request = self.request(self.agent.get(url));
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| network(url, error))?;
        let starts_at = |have: u64| {
            let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
            range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")))
        };
        let goes_on = have > 0 && response.status() == StatusCode::PARTIAL_CONTENT && starts_at(have);
        if have > 0 && !goes_on {
            file.set_len(0).map_err(io("write", path))?;
            have = 0;
            if response.status() != StatusCode::OK {
                return Err(interrupted(url, "the server does not resume where it was interrupted".into()));
            }
        }
        let mut body = self.accept(name, url, response)?.into_body().into_reader();
        progress.at(have, announced.len);
        let mut chunk = vec![0; 1 << 16];
        // A server that sends a byte now and then would never end.
        let (mut since, mut had) = (Instant::now(), have);
        loop {
            let (passed, came) = (since.elapsed(), have - had);
            if passed >= self.config.slow_for {
                if (came as f64) < self.config.least_rate as f64 * passed.as_secs_f64() {
                    let (url, seconds) = (url.clone(), passed.as_secs());
                    return Err(HubError::Slow { url, bytes: came, seconds, least: self.config.least_rate });
                }
                (since, had) = (Instant::now(), have);
            }
            let n = match body.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(interrupted(url, format!("after {have} bytes: {error}"))),
            };
            file.write_all(&chunk[..n]).map_err(io("write", path))?;
            have += n as u64;
            progress.at(have, announced.len);
            if announced.len.is_some_and(|len| have > len) {
                break;
            }
        }
        match announced.len {
            Some(len) if have < len => {
                Err(interrupted(url, format!("it broke off after {have} of {len} bytes")))
            }
            _ => Ok(()),
        }
    }

    /// Sends a HEAD request, following redirects only within the server.
    fn head(&self, url: &str) -> Result<Response<Body>> {
        let mut at = url.to_string();
        for _ in 0..MAX_REDIRECTS {
            let request = self.request(self.agent.head(&at)).config().max_redirects(0).build();
            let response = request.call().map_err(|error| network(&at, error))?;
            let location = response.headers().get("location").and_then(|location| location.to_str().ok());
            match location.filter(|_| response.status().is_redirection()) {
                Some(location) => match own_page(&self.config.endpoint, &at, location) {
                    Some(next) => at = next,
                    None => return Ok(response),
                },
                None => return Ok(response),
            }
        }
        Err(HubError::Protocol { url: url.into(), reason: "it redirects without end".into() })
    }

    fn request<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.config.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Retries while the server is too busy to answer.
    fn persist<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            match ask() {
                Err(HubError::Status { status, .. }) if is_busy(status) && tries < self.config.retries => {
                    thread::sleep(self.config.retry_delay * 2u32.saturating_pow(tries));
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// The response if successful, else the error it signals.
    fn accept(&self, name: &ModelName, url: &str, response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let (endpoint, token) = (self.config.endpoint.clone(), self.config.token.is_some());
        let code = response.headers().get("x-error-code").and_then(|code| code.to_str().ok());
        let name_only = || name.repo.clone();
        Err(match (status.as_u16(), code) {
            (_, Some("GatedRepo")) | (403, _) => HubError::Denied { name: name_only(), token },
            (_, Some("RevisionNotFound")) => {
                HubError::NoRevision { name: name_only(), revision: name.revision.clone() }
            }
            (401, None) if token => HubError::BadToken { endpoint },
            (_, Some("RepoNotFound")) | (401, _) | (404, None) => {
                HubError::NotFound { name: name_only(), endpoint, token }
            }
            (status, _) => HubError::Status { url: url.into(), status },
        })
    }
}

/// The target of a redirect from `at`, if it stays on the server.
fn own_page(endpoint: &str, at: &str, location: &str) -> Option<String> {
    let endpoint: Uri = endpoint.parse().ok()?;
    // Relative to the scheme, to the server, or to the page (RFC 3986, section 4.2).
    let location = match location {
        _ if location.starts_with("//") => format!("{}:{location}", endpoint.scheme_str()?),
        _ if location.starts_with('/') || location.contains("://") => location.to_owned(),
        _ => {
            let page: Uri = at.parse().ok()?;
            let (folder, _) = page.path().rsplit_once('/')?;
            format!("{folder}/{location}")
        }
    };
    let location: Uri = location.parse().ok()?;
    let same = |authority| endpoint.authority() == Some(authority) && endpoint.scheme() == location.scheme();
    match location.authority() {
        Some(authority) => same(authority).then(|| location.to_string()),
        None => Some(format!("{}://{}{location}", endpoint.scheme_str()?, endpoint.authority()?)),
    }
}

/// A path, percent-encoded.
fn escaped(path: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes()
        .map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn network(url: &str, error: ureq::Error) -> HubError {
    interrupted(url, error.to_string())
}

fn interrupted(url: &str, reason: String) -> HubError {
    HubError::Network { url: url.into(), reason }
}

fn is_busy(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Whether the error is temporary.
fn is_passing(error: &HubError) -> bool {
    match error {
        HubError::Network { .. } => true,
        HubError::Status { status, .. } => is_busy(*status),
        _ => false,
    }
}

/// The announced and actual length or hash, if they differ.
fn damage(announced: &Announced, path: &Path) -> Result<Option<(String, String)>> {
    let mut file = File::open(path).map_err(io("read", path))?;
    let len = file.metadata().map_err(io("read", path))?.len();
    if let Some(expected) = announced.len.filter(|expected| *expected != len) {
        return Ok(Some((format!("{expected} bytes"), format!("{len}"))));
    }
    let is_hex = announced.etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (kind, found) = match announced.etag.len() {
        64 if is_hex => ("SHA-256", hex(&digest(Sha256::new(), &mut file).map_err(io("read", path))?)),
        40 if is_hex => {
            let start = Sha1::new_with_prefix(format!("blob {len}\0"));
            ("git's hash", hex(&digest(start, &mut file).map_err(io("read", path))?))
        }
        // A mirror's own: there is nothing to compare it with.
        _ => return Ok(None),
    };
    let same = found.eq_ignore_ascii_case(&announced.etag);
    Ok((!same).then(|| (format!("{kind} {}", announced.etag), found)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest<D: Digest>(mut digest: D, file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(digest.finalize().to_vec()),
            n => digest.update(&chunk[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_gits_and_sha256() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "hello\n").unwrap();
        let damage = |etag: &str, len| {
            damage(&Announced { url: String::new(), etag: etag.into(), len }, &path).unwrap().map(|(a, _)| a)
        };
        // `git hash-object` and `sha256sum` of the same.
        let git = "ce013625030ba8dba906f756967f9e9ca394464a";
        let sha = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        for etag in [git, sha] {
            assert_eq!(damage(etag, Some(6)), None);
            let other = etag.replace("46", "47");
            assert!(damage(&other, Some(6)).unwrap().ends_with(&other));
        }
        assert_eq!(damage(git, Some(7)).unwrap(), "7 bytes");
        assert_eq!(damage("v1-mirror", None), None);
    }

    #[test]
    fn only_the_servers_own_pages_are_followed() {
        let page = |location| own_page("http://hub:8/x", "http://hub:8/x/a/old", location);
        assert_eq!(page("/new/name").unwrap(), "http://hub:8/new/name");
        assert_eq!(page("http://hub:8/new").unwrap(), "http://hub:8/new");
        assert_eq!(page("//hub:8/new/name").unwrap(), "http://hub:8/new/name");
        assert_eq!(page("new?a=b").unwrap(), "http://hub:8/x/a/new?a=b");
        for other in [
            "//cdn/new",
            "//hub:8@evil/x",
            "http://cdn/new",
            "https://hub:8/new",
            "http://hub/new",
            "http://hub:8@evil/x",
        ] {
            assert_eq!(page(other), None, "{other}");
        }
        assert_eq!(escaped("1_Pooling/a b?.json"), "1_Pooling/a%20b%3F.json");
    }
}
