//! `--profile`: where the time of a step goes.
//!
//! The libraries mark operations and phases with `tracing` spans, which cost nothing without a subscriber. Here
//! two layers subscribe for some steps: one sums up, one writes the trace.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use burn::tensor::{Device, Distribution, Tensor};
use cloze_model::ops::{KernelTime, KernelTimes};
use cloze_trainer::metrics::progress::{RunProgress, Status};
use comfy_table::{CellAlignment, Table, presets};
use tracing::span::{Attributes, Id};
use tracing::{Subscriber, field};
use tracing_chrome::ChromeLayerBuilder;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Context as Scope, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::warnings;

/// Warm-up steps before the first measured one: caches fill and memory is allocated.
const WARM_UP: u64 = 5;
/// Maximum number of GPU kernels shown.
const MOST_KERNELS: usize = 20;

/// Measurements of one kind of span.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    calls: u64,
    /// Total time from entering to leaving.
    total: Duration,
    /// The same without nested spans.
    own: Duration,
    flops: u64,
}

/// The sums by kind (phase or operation) and name, for the training thread.
type Sums = HashMap<(bool, &'static str), Sum>;

/// A layer that sums up.
struct Summing(Arc<Mutex<Sums>>);

/// A span's data.
struct Work {
    flops: u64,
}

thread_local! {
    /// The open spans: when they began, and how much time was spent in nested ones.
    static OPEN: RefCell<Vec<(Instant, Duration)>> = const { RefCell::new(Vec::new()) };
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Summing {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, scope: Scope<'_, S>) {
        #[derive(Default)]
        struct Flops(u64);
        impl field::Visit for Flops {
            fn record_u64(&mut self, field: &field::Field, value: u64) {
                if field.name() == "flops" {
                    self.0 = value;
                }
            }
            fn record_debug(&mut self, _: &field::Field, _: &dyn std::fmt::Debug) {}
        }
        let mut flops = Flops::default();
        attributes.record(&mut flops);
        if let Some(span) = scope.span(id) {
            span.extensions_mut().insert(Work { flops: flops.0 });
        }
    }

    fn on_enter(&self, _: &Id, _: Scope<'_, S>) {
        OPEN.with_borrow_mut(|open| open.push((Instant::now(), Duration::ZERO)));
    }

    fn on_exit(&self, id: &Id, scope: Scope<'_, S>) {
        let Some((start, inside)) = OPEN.with_borrow_mut(Vec::pop) else {
            return;
        };
        let total = start.elapsed();
        OPEN.with_borrow_mut(|open| {
            if let Some((_, inside)) = open.last_mut() {
                *inside += total;
            }
        });
        let Some(span) = scope.span(id) else {
            return;
        };
        let metadata = span.metadata();
        let is_operation = metadata.target().starts_with("cloze_ops");
        let flops = span.extensions().get::<Work>().map_or(0, |work| work.flops);
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = sums.entry((is_operation, metadata.name())).or_default();
        sum.calls += 1;
        sum.total += total;
        sum.own += total.saturating_sub(inside);
        sum.flops += flops;
    }
}

/// A run's progress that profiles some of its steps.
pub struct Profiled<P> {
    shown: P,
    steps: u64,
    trace: PathBuf,
    device: Device,
    /// The machine's matrix-product rate, in floating-point operations per second.
    rate: f64,
    /// Steps so far.
    seen: u64,
    state: State,
}

enum State {
    WarmingUp,
    Listening(Listener),
    Done,
}

/// The active subscriber.
struct Listener {
    sums: Arc<Mutex<Sums>>,
    on: Arc<AtomicBool>,
    /// Finishes the trace when dropped.
    writer: tracing_chrome::FlushGuard,
    /// Of a GPU.
    kernels: KernelTimes,
    steps: u64,
}

impl Listener {
    /// Starts profiling; the trace is written to `trace`.
    fn start(trace: &Path) -> Result<Self> {
        let file = File::create(trace).with_context(|| format!("cannot write {}", trace.display()))?;
        let (chrome, writer) = ChromeLayerBuilder::new().writer(file).include_args(true).build();
        let (sums, on) = (Arc::new(Mutex::new(Sums::new())), Arc::new(AtomicBool::new(true)));
        let listening = on.clone();
        let filter = dynamic_filter_fn(move |_, _| listening.load(Ordering::Relaxed));
        warnings::hand_over();
        tracing_subscriber::registry()
            .with(Summing(sums.clone()).and_then(chrome).with_filter(filter))
            .with(warnings::layer())
            .try_init()
            .context("cannot listen to the run")?;
        Ok(Self { sums, on, writer, kernels: KernelTimes::start(), steps: 0 })
    }

    /// Stops profiling and closes the trace; returns the sums.
    fn stop(self) -> (Sums, Vec<KernelTime>) {
        self.on.store(false, Ordering::Relaxed);
        drop(self.writer);
        let sums = std::mem::take(&mut *self.sums.lock().unwrap_or_else(PoisonError::into_inner));
        (sums, self.kernels.finish())
    }
}

impl<P: RunProgress> Profiled<P> {
    /// Profiles `steps` steps after warm-up; the trace is written to a temporary file next to `trace` until it
    /// is complete.
    pub fn new(shown: P, steps: u64, trace: PathBuf, device: &Device) -> Self {
        let (device, rate) = (device.clone(), product_rate(device));
        Self { shown, steps, trace, device, rate, seen: 0, state: State::WarmingUp }
    }

    /// Ends the profile and prints it.
    fn close(&mut self) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::WarmingUp => self.shown.note(&format!(
                "warning: no profile: the run ended within the first {WARM_UP} steps, which are not measured"
            )),
            State::Listening(listener) => {
                let steps = listener.steps;
                let (sums, kernels) = listener.stop();
                self.shown.note(&format!("profile of {steps} steps\n{}", table(&sums, steps, self.rate)));
                if !kernels.is_empty() {
                    self.shown.note(&format!("kernels by time\n{}", table_of_kernels(&kernels, steps)));
                }
                let (trace, part) = (&self.trace, unfinished(&self.trace));
                self.shown.note(&match std::fs::rename(&part, trace) {
                    Ok(()) => format!("trace: {} (ui.perfetto.dev opens it)", trace.display()),
                    Err(error) => format!("warning: no trace: cannot rename {}: {error}", part.display()),
                });
            }
            State::Done => {}
        }
    }
}

/// The temporary path of an unfinished trace.
fn unfinished(trace: &Path) -> PathBuf {
    trace.with_extension("json.part")
}

impl<P: RunProgress> RunProgress for Profiled<P> {
    fn step(&mut self, status: &Status) {
        self.shown.step(status);
        self.seen += 1;
        if self.seen == WARM_UP && status.step < status.steps {
            match Listener::start(&unfinished(&self.trace)) {
                Ok(listener) => self.state = State::Listening(listener),
                Err(error) => {
                    self.state = State::Done;
                    self.shown.note(&format!("warning: no profile: {error:#}"));
                }
            }
        } else if let State::Listening(listener) = &mut self.state {
            listener.steps += 1;
            // The device has finished the step before its times are read. One that fails will say so in the next step.
            if self.device.sync().is_ok() {
                listener.kernels.collect();
            }
            if listener.steps == self.steps {
                self.close();
            }
        }
    }

    fn note(&mut self, line: &str) {
        self.shown.note(line);
    }

    fn finish(&mut self) {
        self.close();
        self.shown.finish();
    }
}

/// The rate at which the device multiplies 1,024 × 1,024 matrices, the best of several tries.
fn product_rate(device: &Device) -> f64 {
    const N: usize = 1024;
    let matrix = || Tensor::<2>::random([N, N], Distribution::Uniform(-1.0, 1.0), device);
    let (a, b) = (matrix(), matrix());
    let tries = (0..8).map(|_| {
        let start = Instant::now();
        let product = a.clone().matmul(b.clone());
        // Reading one number waits for all.
        let _ = product.slice([0..1, 0..1]).into_data();
        start.elapsed().as_secs_f64()
    });
    2.0 * (N * N * N) as f64 / tries.fold(f64::INFINITY, f64::min)
}

/// GPU kernels, the longest first. They add up to less than the step if the GPU waits for the CPU; phases and
/// operations are then the time the CPU takes to fill its queue.
fn table_of_kernels(kernels: &[KernelTime], steps: u64) -> String {
    let all: Duration = kernels.iter().map(|kernel| kernel.time).sum();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "calls", "ms", "of the kernels"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut row = |name: &str, calls: u64, time: Duration| {
        table.add_row([
            name.to_owned(),
            format!("{:.0}", calls as f64 / steps as f64),
            format!("{:.2}", time.as_secs_f64() * 1e3 / steps as f64),
            format!("{:.1} %", 100.0 * time.as_secs_f64() / all.as_secs_f64().max(1e-9)),
        ]);
    };
    let (shown, rest) = kernels.split_at(kernels.len().min(MOST_KERNELS));
    shown.iter().for_each(|kernel| row(&kernel.name, kernel.calls, kernel.time));
    if !rest.is_empty() {
        let calls = rest.iter().map(|kernel| kernel.calls).sum();
        row(&format!("{} others", rest.len()), calls, rest.iter().map(|kernel| kernel.time).sum());
    }
    row("all", kernels.iter().map(|kernel| kernel.calls).sum(), all);
    table.to_string()
}

/// Phases and operations, the longest first.
fn table(sums: &Sums, steps: u64, rate: f64) -> String {
    let step = sums.get(&(false, "step")).map_or(Duration::ZERO, |step| step.total);
    let share =
        |time: Duration| format!("{:.1} %", 100.0 * time.as_secs_f64() / step.as_secs_f64().max(1e-9));
    let millis = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3 / steps as f64);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "calls", "ms", "of a step", "GFLOP/s", "of the product's rate"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let calls = |sum: &Sum| format!("{:.0}", sum.calls as f64 / steps as f64);
    let speed = |flops: u64, time: Duration| match flops {
        0 => [String::new(), String::new()],
        flops => {
            let speed = flops as f64 / time.as_secs_f64().max(1e-9);
            [format!("{:.0}", speed / 1e9), format!("{:.0} %", 100.0 * speed / rate)]
        }
    };
    let all: u64 = sums.values().map(|sum| sum.flops).sum();
    for name in ["step", "wait for data", "forward", "backward", "update"] {
        if let Some(sum) = sums.get(&(false, name)) {
            let [gflops, of_rate] = if name == "step" { speed(all, sum.total) } else { Default::default() };
            table.add_row([name.into(), calls(sum), millis(sum.total), share(sum.total), gflops, of_rate]);
        }
    }
    table.add_row([""; 6]);
    let mut operations: Vec<_> = sums.iter().filter(|((is_operation, _), _)| *is_operation).collect();
    operations.sort_by_key(|((_, name), sum)| (std::cmp::Reverse(sum.own), *name));
    for ((_, name), sum) in operations {
        let [gflops, of_rate] = speed(sum.flops, sum.own);
        table.add_row([name.replace('_', " "), calls(sum), millis(sum.own), share(sum.own), gflops, of_rate]);
    }
    let phases =
        ["step", "forward", "backward", "update"].iter().filter_map(|name| sums.get(&(false, *name)));
    let rest: Duration = phases.map(|sum| sum.own).sum();
    table.add_row([
        "everything else".into(),
        String::new(),
        millis(rest),
        share(rest),
        String::new(),
        String::new(),
    ]);
    // Where no operation is counted, as on graphics processors, there is nothing to compare it with.
    match all {
        0 => table.to_string(),
        _ => format!("{table}\nthe product's rate, 1,024 × 1,024 × 1,024: {:.0} GFLOP/s", rate / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_time_and_the_last_ones_together() {
        let kernel = |number: u64| KernelTime {
            name: format!("kernel_{number}"),
            calls: 4,
            time: Duration::from_millis(2 * (30 - number)),
        };
        let kernels: Vec<KernelTime> = (0..MOST_KERNELS as u64 + 2).map(kernel).collect();
        let table = table_of_kernels(&kernels, 2);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let sum: u64 = (0..MOST_KERNELS as u64 + 2).map(|number| 2 * (30 - number)).sum();
        let share = format!("{:.1}", 6000.0 / sum as f64);
        assert_eq!(lines[1], ["kernel_0", "2", "30.00", &share, "%"]);
        assert_eq!(lines[MOST_KERNELS + 1][..4], ["2", "others", "4", "19.00"]);
        assert_eq!(lines[MOST_KERNELS + 2][..2], ["all", "44"]);
    }

    #[test]
    fn spans_inside_others_count_once() {
        let sums = Arc::new(Mutex::new(Sums::new()));
        let subscriber = tracing_subscriber::registry().with(Summing(sums.clone()));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                let _step = tracing::trace_span!("step").entered();
                let _forward = tracing::trace_span!("forward").entered();
                let _linear =
                    tracing::trace_span!(target: "cloze_ops::flex", "linear", flops = 7_000_000u64).entered();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let sums = sums.lock().unwrap().clone();
        let (step, linear) = (sums[&(false, "step")], sums[&(true, "linear")]);
        assert_eq!((step.calls, linear.calls, linear.flops), (3, 3, 21_000_000));
        assert!(linear.own >= Duration::from_millis(6) && linear.own == linear.total);
        assert!(step.own + sums[&(false, "forward")].own + linear.own == step.total, "{sums:?}");
        let table = table(&sums, 3, 1e12);
        assert!(table.contains("everything else") && table.contains("linear"), "{table}");
        assert!(!table.contains("update"), "no such phase: {table}");
    }
}
