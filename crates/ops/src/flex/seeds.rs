//! The source of dropout seeds: the device's generator or, for recomputation, the seeds drawn the first time.

use burn::tensor::{Device, Distribution, Tensor};
use std::cell::RefCell;
use std::mem::take;
use std::vec::IntoIter;

/// The source of a thread's seeds.
#[derive(Debug, Default)]
pub(super) enum Source {
    /// The device's generator.
    #[default]
    Generator,
    /// Another source whose seeds are recorded.
    Noted { of: Box<Source>, seeds: Vec<u64> },
    /// Recorded seeds.
    Notes(IntoIter<u64>),
}

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source::Generator) };
}

impl Source {
    /// Takes the calling thread's source, which then draws from the generator.
    pub fn take() -> Self {
        SOURCE.take()
    }

    /// Makes it the calling thread's source.
    pub fn put(self) {
        SOURCE.set(self);
    }

    /// Runs `work` with this as the thread's source, and keeps its updated state.
    pub fn within<T>(&mut self, work: impl FnOnce() -> T) -> T {
        /// Restores the thread's source, even after a panic.
        struct Restore<'a> {
            source: &'a mut Source,
            former: Source,
        }
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                *self.source = SOURCE.replace(take(&mut self.former));
            }
        }
        let former = SOURCE.replace(take(self));
        let _restore = Restore { source: self, former };
        work()
    }

    fn draw(&mut self, device: &Device) -> u64 {
        match self {
            Self::Generator => from_generator(device),
            Self::Noted { of, seeds } => {
                let seed = of.draw(device);
                seeds.push(seed);
                seed
            }
            Self::Notes(seeds) => {
                seeds.next().expect("a second computation draws as many seeds as the first")
            }
        }
    }
}

/// The next seed.
pub(super) fn draw_seed(device: &Device) -> u64 {
    SOURCE.with_borrow_mut(|source| source.draw(device))
}

/// Runs `work`, and also returns the seeds it drew.
pub(super) fn noting<T>(work: impl FnOnce() -> T) -> (T, Vec<u64>) {
    let mut source = Source::Noted { of: Box::new(Source::take()), seeds: Vec::new() };
    let result = source.within(work);
    let Source::Noted { of, seeds } = source else { unreachable!("whoever replaces a source restores it") };
    of.put();
    (result, seeds)
}

/// Runs `work` with these seeds instead of new ones.
pub(super) fn again<T>(seeds: Vec<u64>, work: impl FnOnce() -> T) -> T {
    Source::Notes(seeds.into_iter()).within(work)
}

fn from_generator(device: &Device) -> u64 {
    let device = device.clone().inner();
    let [high, low] = [0, 1].map(|_| {
        let draw = Tensor::<1>::random([1], Distribution::Uniform(0.0, 1.0), &device);
        u64::from(draw.into_scalar::<f32>().to_bits())
    });
    high << 32 ^ low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn noted_seeds_come_again_and_the_generator_goes_on_as_if_none_had() {
        let device = Device::flex();
        let three = || [(); 3].map(|()| draw_seed(&device));
        device.seed(5);
        let (first, second) = (three(), three());
        assert_ne!(first, second);
        device.seed(5);
        let (noted, seeds) = noting(three);
        assert_eq!((noted, seeds.as_slice()), (first, first.as_slice()));
        assert_eq!(again(seeds, three), first);
        assert_eq!(three(), second);
    }

    #[test]
    fn notes_within_notes() {
        let device = Device::flex();
        let two = || [draw_seed(&device), draw_seed(&device)];
        let ((inside, inner), outer) = noting(|| noting(two));
        assert_eq!((inner.as_slice(), outer.as_slice()), (inside.as_slice(), inside.as_slice()));
        let (second, noted) = again(outer, || noting(two));
        assert_eq!((second, noted.as_slice()), (inside, inside.as_slice()));
    }

    #[test]
    fn a_panic_restores_the_source() {
        let device = Device::flex();
        let caught = catch_unwind(AssertUnwindSafe(|| again(Vec::new(), || draw_seed(&device))));
        assert!(caught.is_err());
        assert!(matches!(Source::take(), Source::Generator));
    }
}
