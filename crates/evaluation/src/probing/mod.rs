//! Probing of a layer's states: the arithmetic of probes, without tensors.
//!
//! ```text
//! score               accuracy beside that of a control task: selectivity (Hewitt & Liang 2019)
//! description_length  bits of labels in an online code (Voita & Titov 2020)
//! trees               dependency trees, and distances and depths beside them (Hewitt & Manning 2019)
//! ```

mod description_length;
mod score;
mod trees;

pub use description_length::{OnlineCode, portions};
pub use score::ProbeScore;
pub use trees::{DependencyTree, StructuralFigures, StructuralScore, spanning_tree};

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Reference values computed by `tests/fixtures/probing/export.py` with SciPy and NumPy.
    const CASE: &str = include_str!("../../../../tests/fixtures/probing/cases.json");

    fn case() -> (Value, impl Fn(f64, &str)) {
        let case: Value = serde_json::from_str(CASE).unwrap();
        let expected = case.clone();
        let close = move |found: f64, key: &str| {
            let expected = expected[key].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-9, "{key}: {found}, expected {expected}");
        };
        (case, close)
    }

    #[test]
    fn structural_figures_are_those_of_scipy() {
        let (case, close) = case();
        let mut score = StructuralScore::default();
        for sentence in case["sentences"].as_array().unwrap() {
            let list = |key: &str| sentence[key].as_array().unwrap().clone();
            let numbers = |key: &str| list(key).iter().map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>();
            let heads: Vec<usize> = list("heads").iter().map(|x| x.as_u64().unwrap() as usize).collect();
            let kept: Vec<bool> = list("kept").iter().map(|x| x.as_bool().unwrap()).collect();
            let tree = DependencyTree::new(&heads).unwrap();
            score.push_distances(&tree, &kept, &numbers("distances"));
            score.push_depths(&tree, &kept, &numbers("depths"));
        }
        let found = score.figures();
        close(found.uuas, "uuas");
        close(found.distance_spearman, "distance_spearman");
        close(found.root_accuracy, "root_accuracy");
        close(found.depth_spearman, "depth_spearman");
    }

    #[test]
    fn an_online_code_is_that_of_numpy() {
        let (case, close) = case();
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let mut code = OnlineCode::new(number(&case["classes"]), number(&case["first"]));
        for portion in case["portions"].as_array().unwrap() {
            code.push(number(&portion["examples"]), portion["nats"].as_f64().unwrap());
        }
        close(code.bits(), "bits");
        close(code.compression(), "compression");
    }
}
