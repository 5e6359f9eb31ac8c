//! A hub on the loopback: the addresses, headers and redirections of huggingface.co, and its bad days.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use sha1::{Digest, Sha1};
use sha2::Sha256;

pub const COMMIT: &str = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41";

/// What the server has, and how it behaves.
#[derive(Default)]
pub struct State {
    /// Files of each model. Those in `.safetensors` and `.bin` are large ones, which lie with another server.
    pub models: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Models that need the token `hf_good`.
    pub gated: Vec<String>,
    /// Old names of models.
    pub renamed: BTreeMap<String, String>,
    /// The commit that `main` is; any other revision but this and `v1` there is none.
    pub commit: String,
    /// So many answers with bytes break off after so many bytes.
    pub breaks: (usize, usize),
    /// An answer that breaks off stays open instead, saying nothing.
    pub stalls: bool,
    /// So many requests are answered with 503.
    pub busy: usize,
    /// Answers with bytes come a byte at a time, for so long.
    pub trickles: Option<Duration>,
    /// Redirections do not say by which scheme.
    pub bare: bool,
    /// What is said of any model's files.
    pub listing: Option<String>,
    /// Ranges are ignored.
    pub no_ranges: bool,
    /// Bytes are sent with one of them changed.
    pub garbles: bool,
    /// Lengths are announced with so much added.
    pub longer: usize,
    /// Files are announced with this version.
    pub etag: Option<String>,
    /// Every request: method and path, and `+N` for a range.
    pub log: Vec<String>,
}

/// Files by their paths.
pub type Files<'a> = &'a [(&'a str, &'a [u8])];

pub struct Server {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn new(models: &[(&str, Files<'_>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let files = |files: Files<'_>| {
            files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect::<BTreeMap<_, _>>()
        };
        let models = models.iter().map(|(name, list)| (name.to_string(), files(list))).collect();
        let state = Arc::new(Mutex::new(State { models, commit: COMMIT.into(), ..State::default() }));
        let shared = Arc::clone(&state);
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                thread::spawn(move || {
                    // A client that went away is its own affair.
                    let _ = answer(stream, &state, port);
                });
            }
        });
        Self { url: format!("http://127.0.0.1:{port}"), state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The requests since the last call.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn is_large(file: &str) -> bool {
    file.ends_with(".safetensors") || file.ends_with(".bin")
}

pub fn etag(file: &str, bytes: &[u8]) -> String {
    match is_large(file) {
        true => hex(&Sha256::digest(bytes)),
        false => {
            hex(&Sha1::new_with_prefix(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize())
        }
    }
}

struct Request {
    method: String,
    path: String,
    from: usize,
    ranged: bool,
    token: Option<String>,
    host: String,
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let mut parts = first.split(' ').map(str::to_string);
    let (method, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut request = Request { method, path, from: 0, ranged: false, token: None, host: String::new() };
    for line in lines {
        let line = line?;
        let Some((key, value)) = line.split_once(": ") else { break };
        match &*key.to_lowercase() {
            "range" => {
                request.ranged = true;
                request.from = value.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
            }
            "authorization" => request.token = Some(value.trim_start_matches("Bearer ").into()),
            "host" => request.host = value.into(),
            _ => {}
        }
    }
    Ok(request)
}

fn answer(mut stream: TcpStream, state: &Mutex<State>, port: u16) -> std::io::Result<()> {
    let request = read(&stream)?;
    let mut state = state.lock().unwrap();
    let range = if request.ranged { format!("+{}", request.from) } else { String::new() };
    state.log.push(format!("{} {}{range}", request.method, request.path));
    let mut say = |status: &str, headers: &str, body: &[u8]| {
        let body = if request.method == "HEAD" { &[] } else { body };
        let length = if headers.contains("Content-Length") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        write!(stream, "HTTP/1.1 {status}\r\n{headers}{length}Connection: close\r\n\r\n")?;
        stream.write_all(body)
    };
    if state.busy > 0 {
        state.busy -= 1;
        return say("503 Service Unavailable", "", b"");
    }
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    let is_cdn = parts[0] == "cdn";
    if is_cdn && (request.token.is_some() || !request.host.starts_with("localhost")) {
        return say("400 Bad Request", "", b"a token for the hub is given to another server");
    }
    let is_api = parts[0] == "api";
    let rest = if is_api {
        &parts[2..]
    } else if is_cdn {
        &parts[1..]
    } else {
        &parts[..]
    };
    let at = rest.iter().position(|part| ["revision", "resolve"].contains(part)).unwrap_or(rest.len());
    let name = rest[..at].join("/");
    if let Some(new) = state.renamed.get(&name) {
        let to = request.path.replace(&name, new);
        let to = if state.bare { format!("//{}{to}", request.host) } else { to };
        return say("307 Temporary Redirect", &format!("Location: {to}\r\n"), b"");
    }
    match (request.token.as_deref(), state.gated.contains(&name)) {
        _ if is_cdn => {}
        (Some("hf_good"), _) | (None, false) => {}
        (None, true) => return say("401 Unauthorized", "X-Error-Code: GatedRepo\r\n", b""),
        (Some("hf_other"), true) => return say("403 Forbidden", "X-Error-Code: GatedRepo\r\n", b""),
        (Some("hf_other"), false) => {}
        (Some(_), _) => return say("401 Unauthorized", "X-Error-Message: Invalid credentials\r\n", b""),
    }
    let Some(files) = state.models.get(&name) else {
        return say("401 Unauthorized", "X-Error-Code: RepoNotFound\r\n", b"");
    };
    let revision = rest[at + 1];
    if !["main", "v1", &*state.commit].contains(&revision) {
        return say("404 Not Found", "X-Error-Code: RevisionNotFound\r\n", b"");
    }
    if is_api {
        if let Some(listing) = &state.listing {
            return say("200 OK", "", listing.as_bytes());
        }
        let siblings: Vec<String> = files.keys().map(|file| format!(r#"{{"rfilename":"{file}"}}"#)).collect();
        let json =
            format!(r#"{{"id":"{name}","sha":"{}","siblings":[{}]}}"#, state.commit, siblings.join(","));
        return say("200 OK", "", json.as_bytes());
    }
    let file = rest[at + 2..].join("/");
    let Some(bytes) = files.get(&file) else {
        return say("404 Not Found", "X-Error-Code: EntryNotFound\r\n", b"");
    };
    let version = state.etag.clone().unwrap_or_else(|| etag(&file, bytes));
    if is_large(&file) && !is_cdn {
        let headers = format!(
            "X-Repo-Commit: {}\r\nX-Linked-Etag: \"{version}\"\r\nX-Linked-Size: {}\r\nETag: \"cdn\"\r\n\
             Location: {}//localhost:{port}/cdn{}\r\n",
            state.commit,
            bytes.len() + state.longer,
            if state.bare { "" } else { "http:" },
            request.path
        );
        return say("302 Found", &headers, b"");
    }
    let mut bytes = bytes.clone();
    let whole = bytes.len() + state.longer;
    if request.method == "HEAD" {
        let headers = format!("ETag: W/\"{version}\"\r\nContent-Length: {whole}\r\n");
        return say("200 OK", &headers, b"");
    }
    if state.garbles {
        bytes[0] ^= 1;
    }
    let (status, from, range) = match request.ranged && !state.no_ranges {
        true if request.from >= bytes.len() => return say("416 Range Not Satisfiable", "", b""),
        true => {
            let range =
                format!("Content-Range: bytes {}-{}/{}\r\n", request.from, bytes.len() - 1, bytes.len());
            ("206 Partial Content", request.from, range)
        }
        false => ("200 OK", 0, String::new()),
    };
    let body = &bytes[from..];
    let headers = format!("{range}Content-Length: {}\r\n", body.len());
    if let Some(time) = state.trickles {
        drop(state);
        say(status, &headers, b"")?;
        for byte in body {
            thread::sleep(time);
            stream.write_all(&[*byte])?;
        }
        return Ok(());
    }
    if state.breaks.0 > 0 && body.len() > state.breaks.1 {
        state.breaks.0 -= 1;
        say(status, &headers, &body[..state.breaks.1])?;
        let stalls = state.stalls;
        drop(state);
        if stalls {
            thread::sleep(Duration::from_secs(20));
        }
        return Ok(());
    }
    say(status, &headers, body)
}
