//! The two ends of a request: who waits for the answer, and who gives it.

use crate::{Result, TrainerError};
use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A request in progress. Dropping it cancels the request, which leaves before the next step. It can be
/// [waited](Self::wait) for, and awaited by any executor.
#[must_use = "a request without its ticket is cancelled"]
pub struct Ticket<A>(Arc<Slot<A>>);

/// How long a unit took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// From its arrival in the queue until its computation began.
    pub waited: Duration,
    /// From then until its answer, with all that was computed together with it.
    pub computed: Duration,
}

/// The other end. Dropping it without an answer tells the ticket that there will be none.
pub(super) struct Teller<A>(Weak<Slot<A>>);

struct Slot<A> {
    state: Mutex<State<A>>,
    told: Condvar,
}

struct State<A> {
    answer: Option<Result<A>>,
    times: Times,
    is_over: bool,
    waker: Option<Waker>,
}

impl<A> Slot<A> {
    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, answer: Option<Result<A>>, times: Times) {
        let mut state = self.state();
        if state.is_over {
            return;
        }
        (state.answer, state.times, state.is_over) = (answer, times, true);
        let waker = state.waker.take();
        drop(state);
        self.told.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The answer of a queue whose thread is gone.
fn gone<A>() -> Result<A> {
    Err(TrainerError::Panicked { reason: "the queue's thread has ended".into() })
}

impl<A> Ticket<A> {
    pub(super) fn new() -> (Self, Teller<A>) {
        let state = Mutex::new(State { answer: None, times: Times::default(), is_over: false, waker: None });
        let slot = Arc::new(Slot { state, told: Condvar::new() });
        let teller = Teller(Arc::downgrade(&slot));
        (Self(slot), teller)
    }

    /// How long it took; zero until it is answered.
    pub fn times(&self) -> Times {
        self.0.state().times
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// What is wrong with the request or its answer; [`TrainerError::Panicked`].
    pub fn wait(self) -> Result<A> {
        let state = self.0.told.wait_while(self.0.state(), |state| !state.is_over);
        state.unwrap_or_else(PoisonError::into_inner).answer.take().unwrap_or_else(gone)
    }
}

impl<A> Future for Ticket<A> {
    type Output = Result<A>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<A>> {
        let mut state = self.0.state();
        if state.is_over {
            return Poll::Ready(state.answer.take().unwrap_or_else(gone));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<A> Debug for Ticket<A> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("is_over", &self.0.state().is_over).finish_non_exhaustive()
    }
}

impl<A> Teller<A> {
    /// Whether the ticket is still held.
    pub fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Gives the answer.
    pub fn tell(self, answer: Result<A>, times: Times) {
        if let Some(slot) = self.0.upgrade() {
            slot.end(Some(answer), times);
        }
    }
}

impl<A> Drop for Teller<A> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.upgrade() {
            slot.end(None, Times::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ticket_is_awaited_and_told_once() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let context = &mut Context::from_waker(&waker);
        let (mut ticket, teller) = Ticket::new();
        assert!(Pin::new(&mut ticket).poll(context).is_pending() && teller.is_wanted());
        let times = Times { waited: Duration::from_secs(1), computed: Duration::from_secs(2) };
        teller.tell(Ok(7), times);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(matches!(Pin::new(&mut ticket).poll(context), Poll::Ready(Ok(7))));
        assert_eq!(ticket.times(), times);

        let (ticket, teller) = Ticket::<u8>::new();
        drop(teller);
        assert!(ticket.wait().unwrap_err().to_string().contains("has ended"));
        let (ticket, teller) = Ticket::<u8>::new();
        drop(ticket);
        assert!(!teller.is_wanted());
    }
}
