//! Prints the libraries' warnings on standard error, each once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::output::say;

thread_local! {
    /// Subscribes on the main thread until a profile subscribes globally.
    static HERE: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Subscribes from now on. A process can set a global subscriber only once, so a run to be profiled subscribes
/// on this thread first.
pub fn listen(will_be_profiled: bool) {
    let subscriber = tracing_subscriber::registry().with(layer());
    match will_be_profiled {
        true => HERE.set(Some(tracing::subscriber::set_default(subscriber))),
        // Nothing else listens yet.
        false => _ = tracing::subscriber::set_global_default(subscriber),
    }
}

/// Unsubscribes this thread, for a subscriber with a [`layer`] to follow.
pub fn hand_over() {
    HERE.set(None);
}

/// The subscriber layer that prints warnings.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Warnings::default().with_filter(LevelFilter::WARN)
}

#[derive(Default)]
struct Warnings {
    told: Mutex<HashSet<String>>,
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Those of other crates are for their developers.
        if !event.metadata().target().starts_with("cloze") {
            return;
        }
        let mut message = Message::default();
        event.record(&mut message);
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(message.0.clone()) {
            say(format!("warning: {}", message.0));
        }
    }
}

/// The text of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
