//! The second backend that tests are built with.

#![allow(missing_docs)]

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
