//! Chromium, driven by the DevTools protocol over two pipes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::bench::kept;

/// How a page is shown.
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// The window's width in CSS pixels.
    pub width: u32,
    /// Whether the reader prefers dark pages.
    pub dark: bool,
    /// Whether it is printed.
    pub print: bool,
}

/// The window's height.
const HEIGHT: u32 = 900;

/// The height of a screenshot, at most: the beginning of a long page.
const TALLEST: f64 = 6_000.0;

/// A running browser with one page.
pub struct Browser {
    child: Child,
    /// The folder of its pipes and profile.
    folder: PathBuf,
    commands: File,
    events: BufReader<File>,
    session: Option<String>,
    last: u64,
}

impl Browser {
    /// Starts the browser without a window.
    pub fn open(program: &Path) -> Result<Self> {
        let folder = kept::target().join(format!("look-browser-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let pipes = ["commands", "events"].map(|name| folder.join(name));
        if !Command::new("mkfifo").args(&pipes).status().context("cannot start `mkfifo`")?.success() {
            bail!("cannot make pipes in {}", folder.display());
        }
        // The protocol is read from descriptor 3 and written to descriptor 4. Root has no sandbox.
        let child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<"$LOOK_COMMANDS" 4>"$LOOK_EVENTS""#])
            .arg(program)
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--hide-scrollbars", "--disable-extensions", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("LOOK_COMMANDS", &pipes[0])
            .env("LOOK_EVENTS", &pipes[1])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `sh`")?;
        // In the order in which the shell opens them: each end waits for the other.
        let commands = File::options().write(true).open(&pipes[0]).context("cannot open a pipe")?;
        let events = BufReader::new(File::open(&pipes[1]).context("cannot open a pipe")?);
        let mut browser = Self { child, folder, commands, events, session: None, last: 0 };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(String::from);
        browser.call("Page.enable", json!({}))?;
        Ok(browser)
    }

    /// Opens a file in a view.
    pub fn show(&mut self, page: &Path, view: &View) -> Result<()> {
        self.size(view, HEIGHT)?;
        let scheme = if view.dark { "dark" } else { "light" };
        let media = json!({
            "media": if view.print { "print" } else { "screen" },
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        self.call("Emulation.setEmulatedMedia", media)?;
        let url = address(page);
        let opened = self.send("Page.navigate", json!({ "url": url }))?;
        let mut is_opened = false;
        // The two come in either order.
        let mut is_loaded = false;
        while !(is_opened && is_loaded) {
            let message = self.receive()?;
            if message["id"] == opened {
                if let Some(error) = message["result"]["errorText"].as_str() {
                    bail!("the browser cannot open it: {error}");
                }
                is_opened = true;
            }
            is_loaded |= message["method"] == "Page.loadEventFired";
        }
        Ok(())
    }

    fn size(&mut self, view: &View, height: u32) -> Result<()> {
        // Not as a phone, which makes its window as wide as a page that is too wide.
        let size = json!({ "width": view.width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size).map(drop)
    }

    /// The value of an expression within the page.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", asked)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("the measurement failed: {thrown}");
        }
        Ok(answer["result"]["value"].take())
    }

    /// The page, or the beginning of a long one, as PNG.
    pub fn screenshot(&mut self, view: &View) -> Result<Vec<u8>> {
        let height = self.evaluate("document.documentElement.scrollHeight")?.as_f64().unwrap_or(0.0);
        let clip = json!({
            "x": 0, "y": 0, "width": view.width, "height": height.clamp(1.0, TALLEST), "scale": 1,
        });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        bytes(&self.call("Page.captureScreenshot", asked)?)
    }

    /// The page as it is printed.
    pub fn pdf(&mut self) -> Result<Vec<u8>> {
        bytes(&self.call("Page.printToPDF", json!({ "paperWidth": 8.27, "paperHeight": 11.69 }))?)
    }

    /// Sends a command and returns its result.
    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            let mut message = self.receive()?;
            if message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("the browser refused {method}: {error}");
                }
                return Ok(message["result"].take());
            }
        }
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).context("the browser has ended")?;
        Ok(self.last)
    }

    fn receive(&mut self) -> Result<Value> {
        let mut bytes = Vec::new();
        self.events.read_until(0, &mut bytes)?;
        if bytes.pop().is_none() {
            bail!("the browser has ended");
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.send("Browser.close", json!({}));
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The bytes of an answer's `data`.
fn bytes(answer: &Value) -> Result<Vec<u8>> {
    let data = answer["data"].as_str().context("the browser sent no data")?;
    Ok(BASE64_STANDARD.decode(data)?)
}

/// The address of a file. What has a meaning in addresses is escaped.
fn address(path: &Path) -> String {
    let mut address = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                address.push(char::from(*byte))
            }
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}
