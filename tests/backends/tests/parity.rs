//! The second backend that tests are built with.

#![allow(missing_docs)]

use burn::tensor::{Tensor, activation};
use cloze::device::DeviceName;
use cloze_backends::{CASES, TOLERANCE, compare};

#[test]
fn ndarray_computes_what_flex_does() {
    let flex = DeviceName::Flex.open().unwrap();
    let Ok(ndarray) = DeviceName::NdArray.open() else {
        println!("skipped: this build has no ndarray");
        return;
    };
    for case in CASES {
        let found = compare(&(case.run)(&ndarray), &(case.run)(&flex));
        assert!(found.relative <= TOLERANCE, "{}: {found:?}", case.name);
    }
}

#[test]
fn flex_computes_the_same_again() {
    let flex = DeviceName::Flex.open().unwrap();
    for case in CASES {
        assert_eq!(compare(&(case.run)(&flex), &(case.run)(&flex)).relative, 0.0, "{}", case.name);
    }
}

/// When this fails, burn's own operations may be used again where `cloze_ops` goes around them.
#[test]
fn what_is_gone_around_is_still_wrong() {
    let Ok(device) = DeviceName::NdArray.open() else {
        println!("skipped: this build has no ndarray");
        return;
    };
    let x = Tensor::<1>::from_data([0.5], &device.autodiff()).require_grad();
    let gradients = activation::gelu(x.clone()).sum().backward();
    let found = x.grad(&gradients).unwrap().into_scalar::<f32>();
    // Φ(x) + x · φ(x), see `ops::gelu`.
    assert!((found - 0.867_495_1).abs() > 1e-5, "burn's GELU has an exact gradient now: {found}");
}
