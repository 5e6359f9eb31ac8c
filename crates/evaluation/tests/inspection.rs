//! The page of what is seen inside a model: its size, its policy, and that texts stay texts.

#[path = "../examples/invented/mod.rs"]
mod invented;

use cloze_evaluation::EvaluationError;
use cloze_evaluation::inspection::{Inspection, Neurons};
use cloze_evaluation::report::InspectionReport;

fn page(inspection: &Inspection) -> Result<String, EvaluationError> {
    InspectionReport { title: &inspection.model, facts: &[], inspection }.to_html()
}

/// Shares of all-MiniLM-L6-v2 that read this repository's README need 0.44 MB for 128 tokens and 3.51 MB for 512. The invented
/// ones must not be easier.
#[test]
fn pages_are_as_small_as_promised() {
    for (tokens, layers, real, limit) in
        [(128, 6, 440_000, 700_000), (512, 6, 3_510_000, 4_000_000), (512, 12, 7_020_000, 9_000_000)]
    {
        let size = page(&invented::long(tokens, layers, 12)).unwrap().len();
        println!("{layers} layers of 12 heads, {tokens} tokens: {size} bytes");
        assert!(size < limit, "{layers} layers of 12 heads, {tokens} tokens: {size} bytes");
        assert!(
            size > real,
            "{layers} layers of 12 heads, {tokens} tokens: {size} bytes are too few to prove anything"
        );
    }
}

#[test]
fn a_page_over_the_limit_says_what_to_leave_out() {
    let mut seen = invented::long(256, 12, 12);
    let mut number = 0_u32;
    let mut vector = |n: usize| {
        (0..n)
            .map(|_| {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (number >> 8) as f32
            })
            .collect::<Vec<f32>>()
    };
    for head in seen.attention.iter_mut().flat_map(|maps| &mut maps.layers).flat_map(|layer| &mut layer.heads)
    {
        let width = 128;
        head.neurons = Some(Neurons {
            width,
            scale: 8.0,
            queries: vector(256 * width),
            keys: vector(256 * width),
            positions: None,
        });
    }
    let said = page(&seen).unwrap_err().to_string();
    for part in ["expected 9.0 MB or less", "leave out the neuron view (1", "some of the 12 layers"] {
        assert!(said.contains(part), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let report = InspectionReport { title: "x", facts: &[], inspection: &seen };
    assert!(report.write(&path).is_err() && !path.exists(), "a page is written whole or not at all");
}

#[test]
fn attention_that_is_not_finite_is_told() {
    let (_, mut seen) = invented::inspections().swap_remove(0);
    seen.attention[0].layers[3].heads[2].shares[5] = f32::NAN;
    let said = page(&seen).unwrap_err().to_string();
    assert!(said.starts_with("layer 3, head 2: the attention has a NaN or an infinity"), "{said}");
}

#[test]
fn texts_are_data_and_nothing_is_loaded() {
    for (name, seen) in invented::inspections().into_iter().filter(|(name, _)| *name != "long") {
        let page = page(&seen).unwrap();
        assert_eq!(page.matches("<script").count(), page.matches("</script").count(), "{name}");
        for foreign in ["<img", "<b>", "alert(1)<", "xlink", "@import"] {
            assert!(!page.contains(foreign), "{name}: {foreign}");
        }
        assert!(
            page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"),
            "{name}"
        );
        assert_eq!(page, self::page(&seen).unwrap(), "{name}: the same report makes the same bytes");
    }
}

#[test]
fn an_inspection_with_nothing_seen_is_still_a_page() {
    let (_, mut seen) = invented::inspections().swap_remove(0);
    seen.attention.clear();
    seen.explanations.clear();
    seen.answer = None;
    seen.notes = vec!["This model has no attention.".into()];
    let page = page(&seen).unwrap();
    assert!(page.contains("This model has no attention.") && !page.contains("id=\"stage\""));
}
