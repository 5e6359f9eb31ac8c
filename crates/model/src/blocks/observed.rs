//! The inputs of linear maps, seen from outside.

use crate::ops::scoped;
use burn::module::ParamId;
use burn::tensor::Tensor;
use std::cell::RefCell;

type Observer<'a> = dyn FnMut(ParamId, Tensor<2>) + 'a;

thread_local! {
    static OBSERVER: RefCell<Option<Box<Observer<'static>>>> = const { RefCell::new(None) };
}

/// Runs `run` and hands `observer` the input of every [`Linear`](super::Linear) that is applied meanwhile on this thread,
/// as `[tokens, d_in]`, with the id of its weight.
///
/// # Panics
/// If it is already running on this thread.
pub fn observe_inputs<R>(observer: impl FnMut(ParamId, Tensor<2>) + 'static, run: impl FnOnce() -> R) -> R {
    assert!(OBSERVER.with_borrow(Option::is_none), "one observer at a time");
    scoped(&OBSERVER, Some(Box::new(observer)), run).0
}

/// Whether an observer sees the inputs of maps on this thread.
pub(super) fn is_observed() -> bool {
    OBSERVER.with_borrow(Option::is_some)
}

/// Hands over a map's input.
pub(super) fn observed<const D: usize>(weight: ParamId, x: &Tensor<D>) {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(observer) = observer {
            let shape = x.dims();
            let n_tokens = shape[..D - 1].iter().product::<usize>();
            observer(weight, x.clone().reshape([n_tokens, shape[D - 1]]));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::Linear;
    use burn::tensor::Device;
    use std::rc::Rc;

    #[test]
    fn inputs_are_seen_while_the_observation_lasts() {
        let init = &mut ParamInit::new(&Device::flex(), 1);
        let (one, two) = (Linear::new(3, 2, init), Linear::new(2, 4, init));
        let x = init.truncated_normal([2, 5, 3]).val();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let place = seen.clone();
        let observer = move |id, x: Tensor<2>| place.borrow_mut().push((id, x.dims()));
        observe_inputs(observer, || two.forward(one.forward(x.clone())));
        one.forward(x);
        assert_eq!(*seen.borrow(), [(one.weight.id, [10, 3]), (two.weight.id, [10, 2])]);
    }
}
