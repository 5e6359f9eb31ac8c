//! The second backend that tests are built with.

#![allow(missing_docs)]

use cloze::device::DeviceName;
use cloze_backends::{CASES, TOLERANCE, WORKAROUNDS, compare};

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

/// When this fails, burn's own GELU may be used again.
#[test]
fn what_is_gone_around_is_still_wrong() {
    let Ok(device) = DeviceName::NdArray.open() else {
        println!("skipped: this build has no ndarray");
        return;
    };
    let needed = WORKAROUNDS.iter().map(|workaround| (workaround.is_needed)(&device));
    // Reads are late on graphics adapters alone.
    assert_eq!(needed.collect::<Vec<_>>(), [true, false], "of {WORKAROUNDS:?}");
}
