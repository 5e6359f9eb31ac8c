//! Counters in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::models::Served;
use super::tally::Tally;
use cloze_trainer::requests::QueueCounts;
use std::sync::Arc;

/// Upper bounds of durations, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Requests so far, by route, model and status.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Key, Requests>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    route: String,
    /// Empty: the request was refused before a model was chosen, or needs none.
    model: String,
    status: u16,
}

#[derive(Default)]
struct Requests {
    n: u64,
    seconds: f64,
    /// What they did, added up.
    tally: Tally,
    up_to: [u64; BOUNDS.len()],
}

impl Metrics {
    /// Counts a request.
    pub fn count(&self, route: &str, status: u16, time: Duration, tally: &Tally) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let model = tally.model.clone().unwrap_or_default();
        let of_route = requests.entry(Key { route: route.to_owned(), model, status }).or_default();
        of_route.tally.add(tally);
        let seconds = time.as_secs_f64();
        of_route.n += 1;
        of_route.seconds += seconds;
        for (n, bound) in of_route.up_to.iter_mut().zip(BOUNDS) {
            *n += u64::from(seconds <= bound);
        }
    }

    /// The page of `/metrics`.
    pub fn page(&self, models: &[Arc<Served>]) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = writeln!(page, "{text}");
        };
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let labelled: Vec<(String, &Requests)> =
            requests.iter().map(|(key, found)| (key.labels(), found)).collect();
        let mut of_requests = |name: &str, value: fn(&Requests) -> f64| {
            line(format_args!("# TYPE {name} counter"));
            for (labels, found) in &labelled {
                line(format_args!("{name}{{{labels}}} {}", value(found)));
            }
        };
        of_requests("cloze_requests_total", |found| found.n as f64);
        of_requests("cloze_request_tokens_total", |found| found.tally.tokens as f64);
        of_requests("cloze_request_truncated_total", |found| found.tally.truncated as f64);
        of_requests("cloze_request_tokenizer_seconds_total", |found| found.tally.encoded.as_secs_f64());
        of_requests("cloze_request_queue_seconds_total", |found| found.tally.waited.as_secs_f64());
        of_requests("cloze_request_model_seconds_total", |found| found.tally.computed.as_secs_f64());
        line(format_args!("# TYPE cloze_request_seconds histogram"));
        for (labels, found) in &labelled {
            for (n, bound) in found.up_to.iter().zip(BOUNDS) {
                line(format_args!("cloze_request_seconds_bucket{{{labels},le=\"{bound}\"}} {n}"));
            }
            line(format_args!("cloze_request_seconds_bucket{{{labels},le=\"+Inf\"}} {}", found.n));
            line(format_args!("cloze_request_seconds_sum{{{labels}}} {}", found.seconds));
            line(format_args!("cloze_request_seconds_count{{{labels}}} {}", found.n));
        }
        drop(requests);
        let counts: Vec<_> = models.iter().map(|served| (escaped(&served.name), served.counts())).collect();
        let mut of_models = |name: &str, kind: &str, values: Vec<f64>| {
            line(format_args!("# TYPE {name} {kind}"));
            for ((model, _), value) in counts.iter().zip(values) {
                line(format_args!("{name}{{model=\"{model}\"}} {value}"));
            }
        };
        let of = |value: fn(&QueueCounts) -> f64| counts.iter().map(|(_, counts)| value(counts)).collect();
        of_models("cloze_queue_units", "gauge", of(|counts| counts.waiting as f64));
        of_models("cloze_queue_tokens", "gauge", of(|counts| counts.waiting_tokens as f64));
        of_models("cloze_units_total", "counter", of(|counts| counts.units as f64));
        of_models("cloze_tokens_total", "counter", of(|counts| counts.tokens as f64));
        of_models("cloze_dropped_total", "counter", of(|counts| counts.dropped as f64));
        of_models("cloze_queue_seconds_total", "counter", of(|counts| counts.waited.as_secs_f64()));
        of_models("cloze_model_seconds_total", "counter", of(|counts| counts.computed.as_secs_f64()));
        let truncated = models.iter().map(|served| served.truncated.load(Ordering::Relaxed) as f64);
        of_models("cloze_truncated_total", "counter", truncated.collect());
        line(format_args!("# TYPE cloze_batch_units histogram"));
        for (model, counts) in &counts {
            let mut up_to = 0;
            for (place, n) in counts.sizes.iter().enumerate() {
                up_to += n;
                line(format_args!(
                    "cloze_batch_units_bucket{{model=\"{model}\",le=\"{}\"}} {up_to}",
                    1_u64 << place
                ));
            }
            line(format_args!(
                "cloze_batch_units_bucket{{model=\"{model}\",le=\"+Inf\"}} {}",
                counts.batches
            ));
            line(format_args!("cloze_batch_units_sum{{model=\"{model}\"}} {}", counts.units));
            line(format_args!("cloze_batch_units_count{{model=\"{model}\"}} {}", counts.batches));
        }
        page
    }
}

impl Key {
    fn labels(&self) -> String {
        let Self { route, model, status } = self;
        format!("route=\"{}\",model=\"{}\",status=\"{status}\"", escaped(route), escaped(model))
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_model_and_status() {
        let metrics = Metrics::default();
        let tally = Tally {
            model: Some("a\"b\\".into()),
            tokens: 3,
            encoded: Duration::from_millis(500),
            ..Tally::default()
        };
        metrics.count("/embed", 200, Duration::from_millis(2), &tally);
        metrics.count("/embed", 200, Duration::from_millis(20), &tally);
        metrics.count("/embed", 429, Duration::ZERO, &Tally::default());
        let page = metrics.page(&[]);
        let labels = r#"{route="/embed",model="a\"b\\",status="200"}"#;
        for line in [
            format!("cloze_requests_total{labels} 2"),
            format!("cloze_request_tokens_total{labels} 6"),
            format!("cloze_request_tokenizer_seconds_total{labels} 1"),
            r#"cloze_requests_total{route="/embed",model="",status="429"} 1"#.to_owned(),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.contains("le=\"0.005\"} 1\n") && page.contains("le=\"0.025\"} 2\n"), "{page}");
    }
}
