//! Clients of an HTTP service, a thread each, that check every answer.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// The stack of a client's thread.
const STACK: usize = 256 << 10;

/// What is asked, and what is to be answered.
#[derive(Debug)]
pub struct Questions {
    /// `127.0.0.1:8080`.
    pub address: String,
    pub route: &'static str,
    /// The field with the text.
    pub field: &'static str,
    /// Other fields.
    pub more: Value,
    pub texts: Vec<String>,
    /// The vector of each text; empty: any that is finite.
    pub expected: Vec<Vec<f32>>,
    /// The least cosine of an answer and the vector that is expected; 1: the same bits.
    pub agreement: f32,
}

/// How clients ask.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Each asks again as soon as it is answered.
    Closed { clients: usize },
    /// So many requests a second, whether answered or not; latency counts from when one was due.
    Rate { per_second: f64, clients: usize },
}

/// What the clients saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Of each answer, in milliseconds, sorted.
    latencies: Vec<f64>,
    pub wrong: usize,
    pub seconds: f64,
    /// The clients' own processor time.
    pub cpu_seconds: f64,
}

impl Seen {
    pub fn n(&self) -> usize {
        self.latencies.len()
    }

    pub fn per_second(&self) -> f64 {
        self.n() as f64 / self.seconds
    }

    /// The latency that this share of answers does not exceed, in milliseconds.
    pub fn percentile(&self, share: f64) -> f64 {
        let place = (share * self.n() as f64).ceil() as usize;
        self.latencies.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

/// Asks for this long.
pub fn ask(questions: &Questions, pace: Pace, time: Duration) -> Result<Seen> {
    let (clients, gap) = match pace {
        Pace::Closed { clients } => (clients, None),
        Pace::Rate { per_second, clients } => (clients, Some(1.0 / per_second)),
    };
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Seen::default());
    let cpu = cpu_seconds()?;
    let start = Instant::now();
    let client = || -> Result<()> {
        let (mut latencies, mut wrong) = (Vec::new(), 0);
        let mut line = Line::open(questions)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let due = gap.map_or_else(|| start.elapsed(), |gap| Duration::from_secs_f64(gap * number as f64));
            if due >= time {
                break;
            }
            thread::sleep(due.saturating_sub(start.elapsed()));
            let text = number % questions.texts.len();
            let vector = line.ask(text)?;
            latencies.push((start.elapsed() - due).as_secs_f64() * 1e3);
            wrong += usize::from(!questions.is_right(text, &vector));
        }
        let mut all = all.lock().expect("no client panics");
        all.latencies.append(&mut latencies);
        all.wrong += wrong;
        Ok(())
    };
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, client);
        let threads = (0..clients).map(spawn).collect::<Result<Vec<_>, _>>()?;
        threads.into_iter().try_for_each(|thread| thread.join().expect("no client panics"))
    })?;
    let mut seen = all.into_inner().expect("no client panics");
    seen.seconds = start.elapsed().as_secs_f64();
    seen.cpu_seconds = cpu_seconds()? - cpu;
    seen.latencies.sort_by(f64::total_cmp);
    Ok(seen)
}

impl Questions {
    fn is_right(&self, text: usize, vector: &[f32]) -> bool {
        let Some(expected) = self.expected.get(text) else { return vector.iter().all(|x| x.is_finite()) };
        match self.agreement {
            1.0 => vector == expected,
            least => vector.len() == expected.len() && cosine(vector, expected) >= least,
        }
    }

    fn body(&self, text: usize) -> String {
        let mut body = json!({ self.field: self.texts[text] });
        if let (Some(body), Some(more)) = (body.as_object_mut(), self.more.as_object()) {
            body.extend(more.clone());
        }
        body.to_string()
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A connection that is kept.
struct Line<'a> {
    questions: &'a Questions,
    stream: BufReader<TcpStream>,
}

impl<'a> Line<'a> {
    fn open(questions: &'a Questions) -> Result<Self> {
        let stream = TcpStream::connect(&questions.address)
            .with_context(|| format!("cannot reach {}", questions.address))?;
        stream.set_nodelay(true)?;
        Ok(Self { questions, stream: BufReader::new(stream) })
    }

    fn ask(&mut self, text: usize) -> Result<Vec<f32>> {
        let Questions { address, route, .. } = self.questions;
        let request = request_to_post(address, route, &self.questions.body(text));
        self.stream.get_mut().write_all(request.as_bytes())?;
        let answer = answer(&mut self.stream)?;
        vector(&serde_json::from_slice(&answer)?).context("an answer without a vector")
    }
}

fn request_to_post(address: &str, route: &str, body: &str) -> String {
    format!(
        "POST {route} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Asks once, with a JSON body.
pub fn post(address: &str, route: &str, body: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.write_all(request_to_post(address, route, body).as_bytes())?;
    answer(&mut BufReader::new(stream))
}

/// Asks once, without a body.
pub fn get(address: &str, route: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    let request = format!("GET {route} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    answer(&mut BufReader::new(stream))
}

/// The body of an answer, which has to be a good one.
fn answer(stream: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = None;
    loop {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "the connection ended");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let mut body = vec![0; length.context("an answer without its length")?];
    stream.read_exact(&mut body)?;
    if status != "200" {
        bail!("status {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body)
}

/// The first vector in an answer of any shape: `[[0.1]]`, `{"data": [{"embedding": [0.1]}]}`.
fn vector(answer: &Value) -> Option<Vec<f32>> {
    match answer {
        Value::Array(all) if all.first().is_some_and(Value::is_number) => {
            all.iter().map(|x| x.as_f64().map(|x| x as f32)).collect()
        }
        Value::Array(all) => all.first().and_then(vector),
        Value::Object(fields) => fields.get("data").or_else(|| fields.get("embedding")).and_then(vector),
        _ => None,
    }
}

/// The processor time of this process.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may have spaces: the 12th and 13th fields, in hundredths.
    let rest = stat.rsplit_once(") ").context("no times")?.1;
    let ticks: Vec<f64> =
        rest.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>().context("no times")?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn vectors_are_found_in_every_shape() {
        for shape in [
            json!([[0.5, 1]]),
            json!([0.5, 1]),
            json!({ "data": [{ "index": 0, "embedding": [0.5, 1] }], "usage": {} }),
        ] {
            assert_eq!(vector(&shape), Some(vec![0.5, 1.0]), "{shape}");
        }
        assert_eq!(vector(&json!({ "error": "no" })), None);
    }

    #[test]
    fn percentiles() {
        let seen = Seen { latencies: (1..=200).map(f64::from).collect(), seconds: 2.0, ..Seen::default() };
        assert_eq!((seen.percentile(0.5), seen.percentile(0.99), seen.per_second()), (100.0, 198.0, 100.0));
        assert!(Seen::default().percentile(0.5).is_nan());
    }

    /// Answers each request with its text's length, and every tenth with another.
    fn service() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let count = AtomicUsize::new(0);
        let count = Box::leak(Box::new(count));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, count) = (BufReader::new(stream.unwrap()), &*count);
                thread::spawn(move || {
                    loop {
                        let (mut line, mut length) = (String::new(), 0);
                        while stream.read_line(&mut line).unwrap() > 2 {
                            if let Some(value) = line.strip_prefix("content-length: ") {
                                length = value.trim().parse().unwrap();
                            }
                            line.clear();
                        }
                        let mut body = vec![0; length];
                        if length == 0 || stream.read_exact(&mut body).is_err() {
                            return;
                        }
                        let body: Value = serde_json::from_slice(&body).unwrap();
                        let text = body["inputs"].as_str().unwrap().len();
                        let wrong = usize::from(count.fetch_add(1, Ordering::Relaxed) % 10 == 9);
                        let answer = format!("[[{}]]", text + wrong);
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                        stream.get_mut().write_all((head + &answer).as_bytes()).unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn every_answer_is_checked() {
        let texts: Vec<String> = ["a", "bb", "ccc"].map(String::from).to_vec();
        let questions = Questions {
            address: service(),
            route: "/embed",
            field: "inputs",
            more: json!({ "truncate": true }),
            expected: texts.iter().map(|text| vec![text.len() as f32]).collect(),
            texts,
            agreement: 1.0,
        };
        let pace = Pace::Rate { per_second: 500.0, clients: 4 };
        let seen = ask(&questions, pace, Duration::from_millis(200)).unwrap();
        assert_eq!((seen.n(), seen.wrong), (100, 10));
        let seen = ask(&questions, Pace::Closed { clients: 3 }, Duration::from_millis(50)).unwrap();
        assert!(seen.n() > 10 && seen.wrong >= seen.n() / 10 && seen.wrong <= seen.n() / 10 + 1, "{seen:?}");
    }
}
