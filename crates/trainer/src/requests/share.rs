//! Cores that several queues use in turn.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The cores of several [queues](super::Queue): one of them computes at a time, with all cores. Those that have work take
/// turns so that each computes as many tokens as the others, however many tokens its steps have: start-time fair queueing
/// (Goyal et al. 1996).
#[derive(Debug, Clone, Default)]
pub struct Share(Arc<Cores>);

#[derive(Debug, Default)]
struct Cores {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_busy: bool,
    /// The tokens that each member may have had when its next step begins.
    due: Vec<u64>,
    /// Members that wait, with what they are due: the least goes first.
    waiting: BTreeSet<(u64, usize)>,
    /// What the last one to begin was due. Who had nothing to do does not catch up.
    now: u64,
}

/// A queue's part.
#[derive(Debug)]
pub(super) struct Member {
    share: Share,
    number: usize,
}

/// The cores, until this is dropped.
pub(super) struct Turn<'a>(&'a Cores);

impl Cores {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    pub(super) fn join(&self) -> Member {
        let mut state = self.0.state();
        state.due.push(0);
        Member { share: self.clone(), number: state.due.len() - 1 }
    }
}

impl Member {
    /// Waits for its turn to compute this many tokens.
    pub fn enter(&self, tokens: usize) -> Turn<'_> {
        let cores = &*self.share.0;
        let mut state = cores.state();
        let mine = (state.due[self.number].max(state.now), self.number);
        state.waiting.insert(mine);
        let is_others = |state: &mut State| state.is_busy || state.waiting.first() != Some(&mine);
        state = cores.left.wait_while(state, is_others).unwrap_or_else(PoisonError::into_inner);
        state.waiting.remove(&mine);
        state.is_busy = true;
        state.now = mine.0;
        state.due[self.number] = mine.0 + tokens as u64;
        Turn(cores)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().is_busy = false;
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn members_compute_as_many_tokens_as_one_another() {
        let share = Share::default();
        let [inside, ends, met] = [(); 3].map(|()| AtomicBool::new(false));
        // Steps of 100 tokens, and of 10.
        let steps = [100, 10].map(|tokens| (tokens, AtomicUsize::new(0), share.join()));
        thread::scope(|scope| {
            for (tokens, done, member) in &steps {
                let [inside, ends, met] = [&inside, &ends, &met];
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        let turn = member.enter(*tokens);
                        met.fetch_or(inside.swap(true, Ordering::SeqCst), Ordering::SeqCst);
                        thread::sleep(Duration::from_micros(200));
                        done.fetch_add(*tokens, Ordering::Relaxed);
                        inside.store(false, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
            while steps.iter().any(|(_, done, _)| done.load(Ordering::Relaxed) < 1_000) {
                thread::sleep(Duration::from_millis(1));
            }
            ends.store(true, Ordering::Relaxed);
        });
        assert!(!met.into_inner(), "two at a time");
    }

    #[test]
    fn the_one_that_had_least_goes_first_and_nobody_catches_up() {
        let share = Share::default();
        let [a, b] = [share.join(), share.join()];
        let state = || {
            let state = share.0.state();
            (state.now, state.due.clone())
        };
        (0..5).for_each(|_| drop(a.enter(100)));
        // `a` has had 500 tokens and is due at 500; `b` begins where `a` last began.
        drop(b.enter(10));
        assert_eq!(state(), (400, vec![500, 410]));
        drop(b.enter(10));
        assert_eq!(state(), (410, vec![500, 420]));
        drop(a.enter(1));
        assert_eq!(state(), (500, vec![501, 420]));
        // The same for `b`, which waited for nothing meanwhile.
        drop(b.enter(1));
        assert_eq!(state(), (500, vec![501, 501]));
    }
}
