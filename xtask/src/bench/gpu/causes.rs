//! Where a step's time goes on both sides, and the first three causes of the gap.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bench::report;

/// How many kernels of each side are named.
const NAMED: usize = 5;
/// How many causes.
const CAUSES: usize = 3;
/// What is not spent in kernels: the processor has not asked for the next one yet.
const WAITING: &str = "waiting for the processor";
const REST: &str = "elementwise";

/// Parts of a step, and what kernels' names have in them; the first part that a name fits counts.
const PARTS: [(&str, &[&str]); 9] = [
    ("attention", &["attention", "flash", "fmha", "sdpa"]),
    ("optimizer", &["adam", "lamb", "multi_tensor", "squared_sum"]),
    ("products", &["matmul", "gemm", "gemv", "cutlass", "nvjet", "xmma", "addmm", "::mm", "bmm"]),
    ("losses", &["cross_entropy", "crossentropy", "softmax", "nll_loss"]),
    ("norms", &["norm"]),
    ("embeddings", &["embedding", "gather", "select", "scatter", "index"]),
    ("random numbers", &["random", "dropout", "prng", "philox"]),
    (
        "copies and casts",
        &["copy", "cast", "contiguous", "memcpy", "memset", "fill", "to_copy", "slice", "cat"],
    ),
    ("sums", &["reduce", "sum", "mean"]),
];

/// A side's step: the milliseconds of each of its kernels, and of the whole.
pub struct Step {
    /// The longest first.
    kernels: Vec<(String, f64)>,
    ms: f64,
}

impl Step {
    /// From what a side printed: `ms`, and `kernels` as pairs of a name and milliseconds a step.
    pub fn of(line: &Value) -> Self {
        let pairs = line["kernels"].as_array().into_iter().flatten();
        let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_f64()?));
        let mut kernels: Vec<(String, f64)> = pairs.filter_map(pair).collect();
        kernels.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self { kernels, ms: line["ms"].as_f64().unwrap_or(f64::NAN) }
    }

    /// Milliseconds by part of a step.
    fn parts(&self) -> BTreeMap<&'static str, f64> {
        let mut parts = BTreeMap::new();
        for (name, ms) in &self.kernels {
            *parts.entry(part(name)).or_default() += ms;
        }
        let in_kernels: f64 = self.kernels.iter().map(|(_, ms)| ms).sum();
        // Times of kernels that were measured one by one may add up to more than the step.
        parts.insert(WAITING, (self.ms - in_kernels).max(0.0));
        parts
    }
}

fn part(name: &str) -> &'static str {
    let lower = name.to_lowercase();
    let found = PARTS.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word)));
    found.map_or(REST, |(part, _)| part)
}

/// Both steps by part, the first causes of the gap, and the longest kernels.
pub fn text(ours: &Step, theirs: Option<&Step>) -> String {
    let (of_ours, of_theirs) = (ours.parts(), theirs.map(Step::parts).unwrap_or_default());
    let their = |part: &str| of_theirs.get(part).copied().unwrap_or(0.0);
    let our = |part: &str| of_ours.get(part).copied().unwrap_or(0.0);
    let mut parts: Vec<&str> = of_ours.keys().chain(of_theirs.keys()).copied().collect();
    parts.sort_unstable();
    parts.dedup();
    parts.sort_by(|a, b| our(b).total_cmp(&our(a)));
    let rows = parts.iter().map(|part| {
        let shown = |ms: f64| if theirs.is_some() { report::short(ms) } else { "–".into() };
        [
            (*part).to_owned(),
            report::short(our(part)),
            shown(their(part)),
            shown((our(part) - their(part)).max(0.0)),
        ]
    });
    let mut text = format!(
        "Where a step's time goes, in ms:\n\n{}",
        report::table(["part of a step", "ours", "PyTorch", "gap"], rows)
    );
    if theirs.is_some() {
        let gap = |part: &&str| our(part) - their(part);
        let mut gaps: Vec<&str> = parts.into_iter().filter(|part| gap(part) > 0.0).collect();
        gaps.sort_by(|a, b| gap(b).total_cmp(&gap(a)));
        let told: Vec<String> = gaps
            .iter()
            .take(CAUSES)
            .map(|part| format!("{part} ({} ms)", report::short(gap(part))))
            .collect();
        text += &match told.is_empty() {
            true => "\n\nThere is no gap.".to_owned(),
            false => format!("\n\nThe first causes of the gap: {}.", told.join(", ")),
        };
    }
    for (side, step) in [("ours", Some(ours)), ("PyTorch's", theirs)] {
        let longest = step.into_iter().flat_map(|step| step.kernels.iter().take(NAMED));
        let named: Vec<String> =
            longest.map(|(name, ms)| format!("`{}` {}", short(name), report::short(*ms))).collect();
        if !named.is_empty() {
            text += &format!("\n\nThe longest kernels, {side}: {}.", named.join(", "));
        }
    }
    text
}

/// The beginning of a kernel's name, which may be a line of template arguments.
fn short(name: &str) -> String {
    name.chars().take(60).filter(|c| *c != '`' && *c != '|').collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kernels_have_a_part_of_a_step() {
        for (name, expected) in [
            ("matmul_entry_f32", "products"),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
            ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN", "products"),
            ("pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attention"),
            ("triton_per_fused_add_native_layer_norm_native_dropout_3", "norms"),
            ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
            ("adamw::UpdateKernel", "optimizer"),
            ("attention::KeysKernel", "attention"),
            ("cross_entropy::LossKernel", "losses"),
            ("layer_norm::BackwardKernel", "norms"),
            ("gelu::ForwardKernel", "elementwise"),
            ("FuseElemwise", "elementwise"),
            ("Memcpy HtoD (Pinned -> Device)", "copies and casts"),
            ("reduce_kernel", "sums"),
        ] {
            assert_eq!(part(name), expected, "{name}");
        }
    }

    #[test]
    fn the_largest_gaps_are_the_first_causes() {
        let ours = Step::of(&json!({"ms": 30.0, "kernels": [
            ["matmul_a", 8.0], ["FuseElemwise", 1.0], ["attention_fwd", 4.0], ["adamw", 2.0], ["matmul_b", 5.0],
        ]}));
        let theirs = Step::of(&json!({"ms": 12.0, "kernels": [
            ["nvjet_x", 6.0], ["flash_fwd", 1.0], ["triton_poi_fused_gelu_1", 1.5], ["multi_tensor_apply", 1.0],
        ]}));
        let text = text(&ours, Some(&theirs));
        // 30 − 20 against 12 − 9.5; 13 against 6; 4 against 1; 2 against 1.
        assert!(
            text.contains("causes of the gap: waiting for the processor (7.50 ms), products (7.00 ms), attention (3.00 ms)."),
            "{text}"
        );
        assert!(
            text.contains(
                "The longest kernels, ours: `matmul_a` 8.00, `matmul_b` 5.00, `attention_fwd` 4.00,"
            ),
            "{text}"
        );
        assert!(text.contains("PyTorch's: `nvjet_x` 6.00"), "{text}");
    }

    #[test]
    fn without_the_peer_there_is_no_gap_to_tell_of() {
        let ours = Step::of(&json!({"ms": 2.0, "kernels": [["matmul", 3.0]]}));
        let text = text(&ours, None);
        assert!(!text.contains("causes") && text.contains("| products"), "{text}");
        assert_eq!(ours.parts()[WAITING], 0.0);
    }
}
