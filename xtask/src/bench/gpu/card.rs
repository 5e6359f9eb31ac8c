//! What a card is, and how fast it could be.

use std::fmt;
use std::process::{Command, Stdio};

/// A card and the best rates of its dense products, in 10¹² floating-point operations a second, where they are known.
pub struct Card {
    pub name: String,
    pub bf16: Option<f64>,
    /// Of FP32 tensors, whose products tensor cores make in TF32.
    pub tf32: Option<f64>,
}

/// From the makers' data sheets, without sparsity; the first name that is part of a card's counts.
const CARDS: [(&str, f64, f64); 20] = [
    ("GB200", 2_500.0, 1_250.0),
    ("B200", 2_250.0, 1_125.0),
    ("H200 NVL", 835.0, 418.0),
    ("H200", 989.0, 495.0),
    ("GH200", 989.0, 495.0),
    ("H100 PCIe", 756.0, 378.0),
    ("H100 NVL", 835.0, 418.0),
    ("H100", 989.0, 495.0),
    ("H20", 148.0, 74.0),
    ("A100", 312.0, 156.0),
    ("A800", 312.0, 156.0),
    ("A40", 149.7, 74.8),
    ("A30", 165.0, 82.0),
    ("A10", 125.0, 62.5),
    ("L40S", 362.0, 183.0),
    ("L40", 181.0, 90.5),
    ("L4", 121.0, 60.0),
    ("RTX 5090", 209.5, 104.8),
    ("RTX 4090", 165.2, 82.6),
    ("RTX 3090", 71.0, 35.6),
];

impl Card {
    /// The card of a device; `peak` is a given rate of bf16.
    pub fn of(device: &str, peak: Option<f64>) -> Self {
        Self::named(name(device).unwrap_or_else(|| format!("device {device}")), peak)
    }

    fn named(name: String, peak: Option<f64>) -> Self {
        // "A40" is no part of "A4000": what follows is no letter and no digit.
        let has = |part: &str| {
            name.match_indices(part)
                .any(|(at, _)| !name[at + part.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
        };
        let known = CARDS.iter().find(|(part, ..)| has(part));
        let bf16 = peak.or(known.map(|(_, bf16, _)| *bf16));
        // Tensor cores of all of these make half as many TF32 products.
        let tf32 = peak.map(|peak| peak / 2.0).or(known.map(|(.., tf32)| *tf32));
        Self { name, bf16, tf32 }
    }

    /// What of the peak a rate in 10¹² operations a second is; a dash where there is no rate, or the peak is not known.
    pub fn share(&self, rate: f64, precision: &str) -> String {
        match if precision == "f32" { self.tf32 } else { self.bf16 } {
            Some(peak) if rate > 0.0 => format!("{:.0} %", 100.0 * rate / peak),
            _ => "–".into(),
        }
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (self.bf16, self.tf32) {
            (Some(bf16), Some(tf32)) => write!(f, ", peak {bf16:.0} TFLOP/s in bf16 and {tf32:.0} in TF32"),
            _ => f.write_str(", whose peak is not in the table (--peak-tflops says it)"),
        }
    }
}

/// What NVIDIA's driver calls the card; none where there is no such driver.
fn name(device: &str) -> Option<String> {
    let mut ask = Command::new("nvidia-smi");
    ask.args(["--query-gpu=name", "--format=csv,noheader", "-i", drivers_number(device)])
        .stderr(Stdio::null());
    let said = ask.stdin(Stdio::null()).output().ok().filter(|said| said.status.success())?;
    let said = String::from_utf8(said.stdout).ok()?;
    let name = said.lines().next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The number that NVIDIA's driver knows the card by: those of graphics adapters are not the driver's.
fn drivers_number(device: &str) -> &str {
    if device.starts_with("wgpu") { "0" } else { number(device) }
}

/// The number at the end of a device's name, else 0.
fn number(device: &str) -> &str {
    let last = device.rsplit(':').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) { last } else { "0" }
}

/// PyTorch's name of the card that a device is on.
pub fn peers_device(device: &str, small: bool) -> String {
    if small { "cpu".into() } else { format!("cuda:{}", drivers_number(device)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_by_part_of_their_names() {
        let peaks = |name: &str| {
            let card = Card::named(name.into(), None);
            (card.bf16, card.tf32)
        };
        assert_eq!(peaks("NVIDIA H100 80GB HBM3"), (Some(989.0), Some(495.0)));
        assert_eq!(peaks("NVIDIA H100 PCIe"), (Some(756.0), Some(378.0)));
        assert_eq!(peaks("NVIDIA A100-SXM4-80GB"), (Some(312.0), Some(156.0)));
        assert_eq!(peaks("NVIDIA GB200"), (Some(2_500.0), Some(1_250.0)));
        assert_eq!(peaks("NVIDIA L40S"), (Some(362.0), Some(183.0)));
        assert_eq!(peaks("NVIDIA L4"), (Some(121.0), Some(60.0)));
        assert_eq!(peaks("NVIDIA RTX A4000"), (None, None));
        assert_eq!(peaks("NVIDIA H200"), (Some(989.0), Some(495.0)));
        assert_eq!(peaks("NVIDIA GH200 480GB"), (Some(989.0), Some(495.0)));
        assert_eq!(peaks("an unknown card"), (None, None));
        assert_eq!(Card::named("an unknown card".into(), Some(50.0)).tf32, Some(25.0));
    }

    #[test]
    fn a_share_is_of_the_precision_s_peak() {
        let card = Card::named("NVIDIA A100-SXM4-80GB".into(), None);
        assert_eq!([card.share(156.0, "bf16"), card.share(78.0, "f32")], ["50 %", "50 %"]);
        assert_eq!(card.share(0.0, "bf16"), "–");
        assert_eq!(Card::named("another".into(), None).share(10.0, "bf16"), "–");
    }

    #[test]
    fn pytorch_computes_on_the_same_card() {
        assert_eq!(peers_device("cuda:1", false), "cuda:1");
        assert_eq!(peers_device("tch:cuda:2", false), "cuda:2");
        assert_eq!(peers_device("wgpu", false), "cuda:0");
        assert_eq!(peers_device("wgpu", true), "cpu");
    }
}
