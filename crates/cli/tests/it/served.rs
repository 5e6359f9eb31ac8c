//! A service under test, and who asks it.

use crate::library::at;
use crate::ran::spawn;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Response;

/// The head of a request with a body of this many bytes.
pub fn head(length: usize) -> String {
    format!(
        "POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A service that ends with the test.
pub struct Served {
    pub child: Child,
    pub address: String,
    lines: Mutex<Receiver<String>>,
}

/// An answer.
pub struct Got {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Got {
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    /// Status, type and message of an error in text-embeddings-inference's shape.
    #[track_caller]
    pub fn refused(&self) -> (u16, String, String) {
        let error: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!(error.as_object().unwrap().len(), 2, "{error}");
        let text = |key: &str| error[key].as_str().unwrap().to_owned();
        (self.status, text("error_type"), text("error"))
    }
}

impl Served {
    /// Small models of random weights, by the names that they stand for.
    pub fn start(models: &[&str], more: &[&str]) -> Self {
        let folders: Vec<String> =
            models.iter().map(|model| at(model).to_str().unwrap().to_owned()).collect();
        let models = folders.iter().flat_map(|folder| ["--model", folder]);
        Self::of(spawn(["serve", "--port", "0"].into_iter().chain(more.iter().copied()).chain(models)))
    }

    /// A service that was started, when it is ready.
    pub fn of(child: Child) -> Self {
        let served = Self::listening(child);
        served.line("ready: ");
        served
    }

    /// A service that was started, when it listens.
    pub fn listening(mut child: Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (told, lines) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|line| drop(told.send(line))));
        let mut served = Self { child, address: String::new(), lines: Mutex::new(lines) };
        let line = served.line("listening on ");
        served.address = line.rsplit(' ').next().unwrap().to_owned();
        served
    }

    /// Waits for a line that contains this.
    #[track_caller]
    pub fn line(&self, part: &str) -> String {
        let mut before = String::new();
        loop {
            let line = self.lines.lock().unwrap().recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("no line with {part:?} after:\n{before}"));
            if line.contains(part) {
                return line;
            }
            before += &format!("{line}\n");
        }
    }

    fn got(response: Result<Response<ureq::Body>, ureq::Error>) -> Got {
        let mut response = response.unwrap();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        Got { status: response.status().as_u16(), headers: response.headers().clone(), text }
    }

    fn agent() -> Agent {
        Agent::config_builder().http_status_as_error(false).build().into()
    }

    pub fn get(&self, path: &str) -> Got {
        Self::got(Self::agent().get(format!("{}{path}", self.address)).call())
    }

    pub fn post(&self, path: &str, body: &Value) -> Got {
        self.post_text(path, &body.to_string(), &[])
    }

    pub fn post_text(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Got {
        let mut request = Self::agent().post(format!("{}{path}", self.address));
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Self::got(request.send(body))
    }

    /// A connection of its own.
    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address.trim_start_matches("http://")).unwrap()
    }

    /// Same, if it still listens.
    pub fn connect_if_there(&self) -> Option<TcpStream> {
        TcpStream::connect(self.address.trim_start_matches("http://")).ok()
    }

    /// A connection on which `/embed` was asked with this body.
    pub fn begin(&self, body: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all((head(body.len()) + body).as_bytes()).unwrap();
        stream
    }

    /// What the service answers to these bytes, until it closes the connection.
    pub fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // It may have answered, and closed, before all is sent.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A counter of a model's.
    pub fn count(&self, name: &str) -> u64 {
        let page = self.get("/metrics").text;
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{model=")));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
    }

    /// Waits for its end; its status.
    pub fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// Ends it with SIGTERM; its status.
    pub fn stop(self) -> i32 {
        self.terminate();
        self.wait()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
