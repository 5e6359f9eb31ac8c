//! The processor that measures, and its class: tables have rows of one processor for each class.

use std::fmt;
use std::fs;

/// Processors by the fastest instructions that products can be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Intel's tiles, with products in bf16.
    Amx,
    Avx512,
    Avx2,
    Other,
}

impl Class {
    /// In the order of a page.
    pub const ALL: [Self; 4] = [Self::Amx, Self::Avx512, Self::Avx2, Self::Other];

    /// By the flags of `/proc/cpuinfo`.
    fn of(flags: &[&str]) -> Self {
        let has = |wanted: &[&str]| wanted.iter().all(|flag| flags.contains(flag));
        match () {
            () if has(&["amx_tile", "amx_bf16"]) => Self::Amx,
            () if has(&["avx512f", "avx512bw"]) => Self::Avx512,
            () if has(&["avx2", "fma"]) => Self::Avx2,
            () => Self::Other,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amx => "AMX",
            Self::Avx512 => "AVX-512",
            Self::Avx2 => "AVX2",
            Self::Other => "other",
        })
    }
}

/// A processor, as a table says which it is of.
pub struct Processor {
    name: String,
    cores: usize,
    pub class: Class,
}

impl Processor {
    /// This machine's; where the system does not describe it, an unknown one of the class `other`.
    pub fn here() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
        Self::of(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), cores)
    }

    /// As `/proc/cpuinfo` describes its first core.
    fn of(description: &str, cores: usize) -> Self {
        let value = |key: &str| {
            let mut fields = description.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let flags: Vec<&str> = value("flags").unwrap_or_default().split_whitespace().collect();
        let name = value("model name").unwrap_or("unknown processor").to_owned();
        Self { name, cores, class: Class::of(&flags) }
    }

    /// What is wanted of it, of the goals for AMX, AVX-512 and AVX2; 0 where there is no goal.
    pub fn goal(&self, [amx, avx512, avx2]: [f64; 3]) -> f64 {
        match self.class {
            Class::Amx => amx,
            Class::Avx512 => avx512,
            Class::Avx2 => avx2,
            Class::Other => 0.0,
        }
    }
}

/// `AMD EPYC, 2 cores`
impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores", self.name, self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_of_the_class_of_its_fastest_instructions() {
        let with = |flags: &str| {
            let core = format!(
                "processor\t: 0\nmodel name\t: A Name: of sorts\nflags\t\t: fpu {flags}\nbugs\t\t: some\n"
            );
            Processor::of(&format!("{core}\n{core}"), 2)
        };
        for (flags, class) in [
            ("avx2 fma avx512f avx512bw avx512_bf16 amx_bf16 amx_tile amx_int8", Class::Amx),
            ("avx2 fma avx512f avx512bw amx_tile", Class::Avx512),
            ("fma avx2", Class::Avx2),
            ("avx2", Class::Other),
            ("", Class::Other),
        ] {
            let found = with(flags);
            assert_eq!(found.class, class, "{flags}");
            assert_eq!(found.to_string(), "A Name: of sorts, 2 cores");
        }
        assert_eq!(Processor::of("", 1).to_string(), "unknown processor, 1 cores");
    }

    #[test]
    fn a_goal_is_its_classes() {
        let goals =
            Class::ALL.map(|class| Processor { name: String::new(), cores: 1, class }.goal([3.0, 2.0, 1.0]));
        assert_eq!(goals, [3.0, 2.0, 1.0, 0.0]);
    }
}
