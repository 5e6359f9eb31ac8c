//! Downloads from a server that answers in odd ways. Nothing is written outside the cache, and nothing wrong is kept.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::campaign::case::{self, Case};
use crate::campaign::mutate;
use crate::campaign::program::Attempt;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const FILES: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];

/// How the server errs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Oddity {
    None,
    /// The listing is damaged JSON.
    Listing,
    /// The listing has a name that leads out of the folder.
    Outside,
    /// All files have one tag.
    OneTag,
    /// A file ends before its length.
    Short,
    /// A file is longer than its length.
    Long,
    /// A file is damaged, its length as told.
    Damaged,
    /// A page of text in place of everything.
    Page,
    /// Redirects in a circle.
    Circle,
    /// An error of the server, now and then.
    Errors,
    /// A line that is no HTTP.
    NoHttp,
}

const ODDITIES: [Oddity; 11] = [
    Oddity::None,
    Oddity::Listing,
    Oddity::Outside,
    Oddity::OneTag,
    Oddity::Short,
    Oddity::Long,
    Oddity::Damaged,
    Oddity::Page,
    Oddity::Circle,
    Oddity::Errors,
    Oddity::NoHttp,
];

/// What is served.
struct Site {
    oddity: Oddity,
    listing: Vec<u8>,
    files: Vec<(String, Vec<u8>)>,
    /// The file that the oddity is about.
    odd: usize,
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let oddity = *case.random.pick(&ODDITIES);
    let files = FILES
        .iter()
        .map(|name| Ok(((*name).to_owned(), case.world.read(&format!("models/mlm/{name}"))?)))
        .collect::<Result<Vec<_>>>()?;
    let mut names: Vec<&str> = FILES.to_vec();
    if oddity == Oddity::Outside {
        names.push(*case.random.pick(&[
            "../../../../outside.json",
            "/outside.json",
            "a/../../outside.json",
            "a\\..\\b",
        ]));
    }
    let siblings: Vec<_> = names.iter().map(|name| json!({"rfilename": name})).collect();
    let listing = json!({"sha": COMMIT, "siblings": siblings});
    let listing = match oddity {
        Oddity::Listing => mutate::json(&mut case.random, &listing),
        _ => listing.to_string(),
    };
    let odd = case.random.below(FILES.len());
    let site = Arc::new(Site { oddity, listing: listing.into_bytes(), files, odd });
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("http://{}", listener.local_addr()?);
    let done = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let (site, done) = (site.clone(), done.clone());
        move || serve(&listener, &site, &done)
    });
    let call = |command: &[&str]| {
        Attempt::new(command.iter().copied())
            .environment("HF_ENDPOINT", url.clone())
            .environment("HF_HOME", "hf")
            .environment("HF_HUB_DISABLE_TELEMETRY", "1")
    };
    let pulled = case.run(call(&["pull", "someone/mini"]));
    // What was kept is whole, or it is refused.
    let asked = match pulled.as_ref().is_ok_and(|ran| ran.succeeded()) {
        true => Some(
            case.run(
                call(&["embed", "--model", "someone/mini"])
                    .environment("HF_HUB_OFFLINE", "1")
                    .input("the law of 1800\n"),
            ),
        ),
        false => None,
    };
    done.store(true, Ordering::SeqCst);
    // Wakes the server.
    drop(TcpStream::connect(url.trim_start_matches("http://")));
    drop(server.join());
    let (pulled, asked) = (pulled?, asked.transpose()?);
    let must = matches!(oddity, Oddity::None);
    case.expect(pulled.succeeded() || !must, "a whole model is not pulled");
    let wrong = matches!(oddity, Oddity::Short | Oddity::Page | Oddity::Circle | Oddity::NoHttp);
    case.expect(!(pulled.succeeded() && wrong), "a broken download is taken");
    if let Some(asked) = asked.filter(|_| must) {
        case.expect(asked.succeeded(), "a model that was pulled cannot be used");
    }
    let stray: Vec<String> = case::files(&case.path(""))
        .iter()
        .map(|path| path.display().to_string())
        .filter(|path| !path.starts_with("hf"))
        .collect();
    case.expect(stray.is_empty(), format!("written outside the cache: {stray:?}"));
    Ok(())
}

/// Answers until it is done.
fn serve(listener: &TcpListener, site: &Site, done: &AtomicBool) {
    let mut asked = 0;
    while let Ok((stream, _)) = listener.accept() {
        if done.load(Ordering::SeqCst) {
            return;
        }
        asked += 1;
        // A client that goes away is no matter of ours.
        let _ = answer(&stream, site, asked);
    }
}

fn answer(stream: &TcpStream, site: &Site, asked: usize) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut stream = stream;
    let mut send = |status: &str, headers: &str, length: usize, body: &[u8]| {
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n"
        )?;
        if method != "HEAD" {
            stream.write_all(body)?;
        }
        stream.flush()
    };
    match site.oddity {
        Oddity::NoHttp => return stream.write_all(b"SSH-2.0-x\r\n"),
        Oddity::Page => {
            let page = b"<html>log in first</html>";
            return send("200 OK", "Content-Type: text/html\r\n", page.len(), page);
        }
        Oddity::Circle => return send("302 Found", &format!("Location: {path}\r\n"), 0, b""),
        Oddity::Errors if asked.is_multiple_of(2) => return send("503 Busy", "", 0, b""),
        _ => {}
    }
    if path.starts_with("/api/") {
        return send("200 OK", "", site.listing.len(), &site.listing);
    }
    let Some(at) = site.files.iter().position(|(name, _)| path.ends_with(&format!("/{name}"))) else {
        return send("404 Not Found", "", 0, b"");
    };
    let whole = &site.files[at].1;
    let is_odd = at == site.odd;
    let mut body = whole.clone();
    match site.oddity {
        Oddity::Short if is_odd => body.truncate(whole.len() / 2),
        Oddity::Long if is_odd => body.extend_from_slice(b"more"),
        Oddity::Damaged if is_odd => {
            let middle = body.len() / 2;
            body[middle] ^= 0x55;
        }
        _ => {}
    }
    let tag = match site.oddity {
        Oddity::OneTag => "0000".to_owned(),
        _ => format!("{at}{}", whole.len()),
    };
    let headers = format!("ETag: \"{tag}\"\r\nX-Repo-Commit: {COMMIT}\r\n");
    send("200 OK", &headers, whole.len(), &body)
}
