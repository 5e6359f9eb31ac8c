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
    /// What pages have complained about.
    errors: Vec<String>,
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
        let mut browser =
            Self { child, folder, commands, events, session: None, last: 0, errors: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        // A page in a file needs nothing else.
        browser.network(false)?;
        Ok(browser)
    }

    /// Gives pages a network, or takes it.
    pub fn network(&mut self, is_on: bool) -> Result<()> {
        let conditions =
            json!({ "offline": !is_on, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
        self.call("Network.emulateNetworkConditions", conditions).map(drop)
    }

    /// Opens a file in a view.
    pub fn show(&mut self, page: &Path, view: &View) -> Result<()> {
        self.show_at(page, "", view)
    }

    /// Opens a file at a fragment of its address, such as `#view=matrix`, in a view.
    pub fn show_at(&mut self, page: &Path, fragment: &str, view: &View) -> Result<()> {
        self.show_url(&format!("{}{fragment}", address(page)), view)
    }

    /// Opens an address in a view.
    pub fn show_url(&mut self, url: &str, view: &View) -> Result<()> {
        self.size(view, HEIGHT)?;
        let scheme = if view.dark { "dark" } else { "light" };
        let media = json!({
            "media": if view.print { "print" } else { "screen" },
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        self.call("Emulation.setEmulatedMedia", media)?;
        // Another fragment of the page that is open would not open it again.
        self.navigate("about:blank")?;
        self.navigate(url)
    }

    fn navigate(&mut self, url: &str) -> Result<()> {
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

    /// What the pages have complained about since the last call: thrown and logged errors, and what the policy refused.
    pub fn errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }

    /// Moves the mouse, in CSS pixels of the window.
    pub fn point(&mut self, x: f64, y: f64) -> Result<()> {
        self.mouse("mouseMoved", x, y, 0)
    }

    /// Presses the mouse's button.
    pub fn click(&mut self, x: f64, y: f64) -> Result<()> {
        self.point(x, y)?;
        self.mouse("mousePressed", x, y, 1)?;
        self.mouse("mouseReleased", x, y, 1)
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64, clicks: u32) -> Result<()> {
        let button = if clicks > 0 { "left" } else { "none" };
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": clicks });
        self.call("Input.dispatchMouseEvent", event).map(drop)
    }

    /// Taps with a finger.
    pub fn tap(&mut self, x: f64, y: f64) -> Result<()> {
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": true }))?;
        let point = json!([{ "x": x, "y": y }]);
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchStart", "touchPoints": point }))?;
        self.call("Input.dispatchTouchEvent", json!({ "type": "touchEnd", "touchPoints": [] }))?;
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": false })).map(drop)
    }

    /// Presses a key by its name, such as `ArrowDown`.
    pub fn key(&mut self, key: &str) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key }))?;
        }
        Ok(())
    }

    /// Presses Enter with the control key.
    pub fn control_enter(&mut self) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 2 });
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Types a text where the cursor is.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text })).map(drop)
    }

    /// Lets pages save files to a folder.
    pub fn save_to(&mut self, folder: &Path) -> Result<()> {
        let asked = json!({ "behavior": "allow", "downloadPath": folder.display().to_string() });
        self.call("Browser.setDownloadBehavior", asked).map(drop)
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
        let message: Value = serde_json::from_slice(&bytes)?;
        self.errors.extend(complaint(&message));
        Ok(message)
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

/// The error that an event tells, if it does.
fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    let said = match event["method"].as_str()? {
        "Runtime.exceptionThrown" => {
            let details = &params["exceptionDetails"];
            details["exception"]["description"].as_str().or(details["text"].as_str())?
        }
        "Runtime.consoleAPICalled" if params["type"] == "error" => {
            params["args"][0]["value"].as_str().unwrap_or("console.error")
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => params["entry"]["text"].as_str()?,
        _ => return None,
    };
    Some(said.replace('\n', " "))
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
