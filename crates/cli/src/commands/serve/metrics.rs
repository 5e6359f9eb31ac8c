//! Counters in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::models::Served;
use std::sync::Arc;

/// Upper bounds of durations, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Requests so far, by route and status.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(String, u16), Requests>>,
}

#[derive(Default)]
struct Requests {
    n: u64,
    seconds: f64,
    up_to: [u64; BOUNDS.len()],
}

impl Metrics {
    /// Counts a request.
    pub fn count(&self, route: &str, status: u16, time: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let of_route = requests.entry((route.to_owned(), status)).or_default();
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
        line(format_args!("# TYPE cloze_requests_total counter"));
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, status), found) in &*requests {
            line(format_args!("cloze_requests_total{{route=\"{route}\",status=\"{status}\"}} {}", found.n));
        }
        line(format_args!("# TYPE cloze_request_seconds histogram"));
        for ((route, status), found) in &*requests {
            let labels = format!("route=\"{route}\",status=\"{status}\"");
            for (n, bound) in found.up_to.iter().zip(BOUNDS) {
                line(format_args!("cloze_request_seconds_bucket{{{labels},le=\"{bound}\"}} {n}"));
            }
            line(format_args!("cloze_request_seconds_bucket{{{labels},le=\"+Inf\"}} {}", found.n));
            line(format_args!("cloze_request_seconds_sum{{{labels}}} {}", found.seconds));
            line(format_args!("cloze_request_seconds_count{{{labels}}} {}", found.n));
        }
        drop(requests);
        let counts: Vec<_> = models.iter().map(|served| (escaped(&served.name), served.counts())).collect();
        let mut of_models = |name: &str, kind: &str, values: Vec<u64>| {
            line(format_args!("# TYPE {name} {kind}"));
            for ((model, _), value) in counts.iter().zip(values) {
                line(format_args!("{name}{{model=\"{model}\"}} {value}"));
            }
        };
        let of = |value: fn(&cloze_trainer::requests::QueueCounts) -> u64| {
            counts.iter().map(|(_, counts)| value(counts)).collect::<Vec<u64>>()
        };
        of_models("cloze_queue_units", "gauge", of(|counts| counts.waiting as u64));
        of_models("cloze_queue_tokens", "gauge", of(|counts| counts.waiting_tokens as u64));
        of_models("cloze_batches_total", "counter", of(|counts| counts.batches));
        of_models("cloze_units_total", "counter", of(|counts| counts.units));
        of_models("cloze_tokens_total", "counter", of(|counts| counts.tokens));
        of_models("cloze_dropped_total", "counter", of(|counts| counts.dropped));
        let truncated = models.iter().map(|served| served.truncated.load(Ordering::Relaxed)).collect();
        of_models("cloze_truncated_total", "counter", truncated);
        page
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
    fn requests_are_counted_by_route_and_status() {
        let metrics = Metrics::default();
        metrics.count("/embed", 200, Duration::from_millis(2));
        metrics.count("/embed", 200, Duration::from_millis(20));
        metrics.count("/embed", 429, Duration::ZERO);
        let page = metrics.page(&[]);
        assert!(page.contains("cloze_requests_total{route=\"/embed\",status=\"200\"} 2\n"), "{page}");
        assert!(page.contains("cloze_requests_total{route=\"/embed\",status=\"429\"} 1\n"), "{page}");
        assert!(
            page.contains("status=\"200\",le=\"0.005\"} 1\n") && page.contains("le=\"0.025\"} 2\n"),
            "{page}"
        );
        assert_eq!(escaped("a\"b\\"), "a\\\"b\\\\");
    }
}
