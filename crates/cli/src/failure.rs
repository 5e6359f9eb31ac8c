//! Error messages and exit status.

use std::fmt;
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::anyhow;
use clap::error::ErrorKind;
use cloze::device::DeviceName;
use cloze_trainer::TrainerError;
use cloze_trainer::device_failure::{DeviceFailure, Told};

use crate::output::say;
use crate::spellings;

/// Maximum characters of an error line. A message can quote a text of any length.
const MOST_CHARS: usize = 900;

/// Marks an error as the caller's to fix, wrong usage or a wrong configuration: exit status 2.
#[derive(Debug)]
pub struct WrongUsage(anyhow::Error);

impl WrongUsage {
    /// Wraps `error`, keeping its message and causes.
    pub fn new(error: impl Into<anyhow::Error>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for WrongUsage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Words an error about a setting of a command's own by the option that the user gave, in the user's
/// spelling. A setting that no option gave, such as one of a model's folder, keeps its name.
pub fn by_option(error: TrainerError) -> anyhow::Error {
    let option = |key: &str| {
        let named = match key {
            "beams" => "--beam".to_owned(),
            key => format!("--{}", key.replace('_', "-")),
        };
        spellings::as_typed(&named)
    };
    match error {
        TrainerError::Setting { key, found, expected } => {
            let key = option(&key).unwrap_or(key);
            WrongUsage::new(TrainerError::Setting { key, found, expected }).into()
        }
        error => error.into(),
    }
}

/// The reader of standard output went away, as in `cloze ... | head`: not a failure.
#[derive(Debug)]
pub struct ClosedPipe;

impl fmt::Display for ClosedPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ClosedPipe {}

/// The compute device, if its backend panics on failures such as device loss or too little memory.
static DEVICE: OnceLock<DeviceName> = OnceLock::new();

/// Treats panics as failures of this device from now on.
pub fn computes_on(device: DeviceName) {
    DEVICE.set(device).ok();
}

/// Suppresses the message of a panic that becomes an error: one that a library catches, or a device failure.
/// `RUST_BACKTRACE` shows the latter nevertheless.
pub fn hide_panics_that_become_errors() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let of_device = DEVICE.get().is_some() && std::env::var_os("RUST_BACKTRACE").is_none();
        if !cloze_data::panic_becomes_error() && !of_device {
            default(panic);
        }
    }));
}

/// The result of `work`; if the device reports failures by panics, a panic becomes an error that names it.
pub fn of_device<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let (result, device) = match (result, DEVICE.get()) {
        (Err(panic), None) => panic::resume_unwind(panic),
        (Err(panic), Some(device)) => {
            return Err(anyhow!("{}", of_panic(*device, cloze_data::panic_message(panic.as_ref()))));
        }
        (Ok(result), None) => return result,
        (Ok(result), Some(device)) => (result, device),
    };
    result.map_err(|error| match error.downcast_ref() {
        Some(TrainerError::DeviceFailed { .. }) => error.context(format!("device `{device}`")),
        _ => error,
    })
}

/// A failed device's message, with advice.
fn of_panic(device: DeviceName, said: &str) -> String {
    let told = Told(said);
    match DeviceFailure::of(said) {
        DeviceFailure::OutOfMemory => {
            format!(
                "device `{device}` failed: {told}; it is short of memory: a smaller --batch needs less, and --precision bf16 may"
            )
        }
        _ => format!("device `{device}` failed: {told}; try another --device"),
    }
}

/// Prints the `error:` line of `error` and returns its exit status.
pub fn report(error: &anyhow::Error) -> u8 {
    if error.is::<ClosedPipe>() {
        return 0;
    }
    print(&one_line(error));
    let of_config = error.downcast_ref().is_some_and(TrainerError::is_of_config);
    let of_usage = error.is::<WrongUsage>() || error.downcast_ref().is_some_and(cloze::Error::is_wrong_usage);
    if of_config || of_usage { 2 } else { 1 }
}

/// Prints the command-line parser's output, help or an error, and returns the exit status.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    let help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !help {
        let hint = match error.kind() {
            ErrorKind::InvalidSubcommand => "; `cloze help jobs` lists the commands by what they are for",
            _ => "",
        };
        print(&(spellings::in_message(&usage_line(&error.render().to_string())) + hint));
    } else if let Err(failed) = error.print().and_then(|()| io::stdout().flush()) {
        // Nobody is left to be told when the reader of the help has gone away.
        if failed.kind() != io::ErrorKind::BrokenPipe {
            print(&format!("cannot write to standard output: {failed}"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The parser's multi-paragraph message on one line.
fn usage_line(rendered: &str) -> String {
    let paragraphs = rendered.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let told = paragraphs.filter(|text| !text.is_empty() && !text.starts_with("For more information"));
    let line = told.collect::<Vec<_>>().join("; ");
    at_least(line.strip_prefix("error: ").unwrap_or(&line))
}

/// A range without an end, which the parser ends with the greatest number that there is, as a person says it.
fn at_least(line: &str) -> String {
    let end = format!("..{}", u64::MAX);
    let told = line.split_once(" is not in ").and_then(|(before, range)| {
        let (least, rest) = range.split_once(&end)?;
        let (before, _) = before.rsplit_once(' ')?;
        Some(format!("{before} expected {least} or more{rest}"))
    });
    told.unwrap_or_else(|| line.to_owned())
}

/// Prints a message as the `error:` line, shortened if needed.
fn print(message: &str) {
    say(format_args!("error: {}", shortened(message)));
}

/// The message's beginning and end: the end has the advice.
fn shortened(message: &str) -> String {
    let count = message.chars().count();
    if count <= MOST_CHARS {
        return message.to_owned();
    }
    let part = MOST_CHARS / 2;
    let start: String = message.chars().take(part).collect();
    let end: String = message.chars().skip(count - part).collect();
    format!("{start} … ({} characters left out) … {end}", count - 2 * part)
}

/// The error and its causes, joined by `: `, on one line.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        // Some messages span lines (a TOML parser's picture of the place), some repeat their cause.
        let of_build = cause.downcast_ref().and_then(for_the_program);
        let message = of_build.unwrap_or_else(|| cause.to_string());
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.ends_with(&message) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&message);
    }
    line
}

/// A message that the library words for those who depend on it, worded for those who build the program.
fn for_the_program(error: &cloze::Error) -> Option<String> {
    let build = |feature: &str| format!("`cargo build --release -p cloze --features {feature}`");
    match error {
        cloze::Error::NotBuiltIn { device, feature } => Some(format!(
            "device `{device}` is not in this build of the program: add it with {}; `cloze devices` lists those it has",
            build(feature)
        )),
        cloze::Error::NoDevice => Some(format!("this build has no device: add one with {}", build("flex"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use cloze_data::DataError;
    use cloze_evaluation::EvaluationError;
    use cloze_model::ModelError;

    use super::*;

    #[test]
    fn a_range_without_an_end_is_told_by_its_beginning() {
        let told =
            at_least("invalid value '0' for '--n <N>': 0 is not in 1..18446744073709551615; see --help");
        assert_eq!(told, "invalid value '0' for '--n <N>': expected 1 or more; see --help");
        for other in ["invalid value '0' for '--n <N>': 0 is not in 1..=5", "no such option"] {
            assert_eq!(at_least(other), other);
        }
    }

    #[test]
    fn causes_are_joined_on_one_line() {
        let error = anyhow!("expected a number\n  |  ^").context("run.toml, line 3");
        assert_eq!(one_line(&error), "run.toml, line 3: expected a number | ^");
    }

    #[test]
    fn a_device_s_failure_says_what_to_do_on_one_line() {
        let device = "cuda:1".parse().unwrap();
        let told = of_panic(device, "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n   0: a::b");
        assert!(
            told.starts_with("device `cuda:1` failed: DriverError(") && told.contains("a smaller --batch"),
            "{told}"
        );
        assert!(!told.contains('\n') && !told.contains("a::b"), "{told}");
        let told = of_panic(device, "driver version is insufficient for CUDA runtime version");
        assert!(
            told.contains("install a newer driver of the device's maker or, if a library such as nvrtc")
                && told.ends_with("the CUDA toolkit; try another --device"),
            "{told}"
        );
    }

    #[test]
    fn a_cause_that_the_message_already_gives_is_not_repeated() {
        let error = anyhow!("no such file").context("vocab.txt: no such file");
        assert_eq!(one_line(&error), "vocab.txt: no such file");
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        let long = format!("nothing to fill in \"{}\": write [MASK]", "ä".repeat(1 << 20));
        let line = shortened(&long);
        assert!(line.chars().count() < MOST_CHARS + 50, "{}", line.len());
        assert!(line.starts_with("nothing to fill in \"ää") && line.ends_with("ää\": write [MASK]"));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn wrong_usage_is_one_line() {
        let rendered = "error: unexpected argument '--fast' found\n\n  tip: a similar argument exists: '--f'\n\n\
                        Usage: cloze devices [OPTIONS]\n\nFor more information, try '--help'.\n";
        let expected = "unexpected argument '--fast' found; tip: a similar argument exists: '--f'; \
                        Usage: cloze devices [OPTIONS]";
        assert_eq!(usage_line(rendered), expected);
    }

    #[test]
    fn the_kind_of_error_decides_the_exit_status() {
        let status = |error: anyhow::Error| report(&error);
        assert_eq!(status(anyhow!("disk full")), 1);
        assert_eq!(status(WrongUsage::new(anyhow!("no such key")).into()), 2);
        assert_eq!(status(ClosedPipe.into()), 0);
        let wrapped = Err::<(), _>(WrongUsage::new(anyhow!("no such key"))).context("run.toml");
        assert_eq!(status(wrapped.unwrap_err()), 2);
    }

    #[test]
    fn a_setting_of_the_config_is_wrong_usage_and_bad_data_is_not() {
        let status = |error: TrainerError| report(&error.into());
        let setting = |key: &str| (key.to_owned(), "not as expected".to_owned());
        let (key, found) = setting("data.max_len");
        assert_eq!(status(TrainerError::Setting { key, found, expected: "at most 512".into() }), 2);
        let no_figure =
            |name: &str| EvaluationError::NoFigure { name: name.into(), known: vec!["f1".into()] };
        assert_eq!(status(no_figure("bleu").into()), 2);
        let (key, problem) = setting("columns.txt");
        assert_eq!(status(DataError::LabelledSetting { key, problem }.into()), 2);
        let length = DataError::FeatureLength { key: "stride", value: 9, problem: "too much".into() };
        assert_eq!(status(length.into()), 2);
        let (pattern, reason) = setting("head.*");
        assert_eq!(status(ModelError::Pattern { pattern, reason }.into()), 2);
        let (pattern, reason) = setting("head.*");
        assert_eq!(status(TrainerError::ParamGroup { group: 0, pattern, reason }), 2);
        let wrapped = anyhow::Error::new(TrainerError::from(no_figure("a")));
        assert_eq!(report(&wrapped.context("run.toml")), 2);

        let (path, problem) = ("a.tsv".into(), "no label".into());
        assert_eq!(status(DataError::BadRow { path, line: Some(1), problem }.into()), 1);
        assert_eq!(status(TrainerError::NoExamples { split: "training" }), 1);
        assert_eq!(status(ModelError::Config("of a file".into()).into()), 1);
    }

    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn a_backend_that_is_not_built_in_is_a_matter_of_the_programs_build() {
        let error = cloze::device::open(DeviceName::Wgpu(None)).unwrap_err();
        assert!(error.to_string().contains("feature `wgpu` to the dependency `cloze`"), "{error}");
        let line = one_line(&anyhow::Error::new(error).context("--device"));
        assert_eq!(
            line,
            "--device: device `wgpu` is not in this build of the program: add it with \
             `cargo build --release -p cloze --features wgpu`; `cloze devices` lists those it has"
        );
    }

    #[test]
    fn wrong_usage_keeps_the_causes() {
        let inner = anyhow!("not a number").context("key `steps`");
        let error = anyhow::Error::new(WrongUsage::new(inner));
        assert_eq!(one_line(&error), "key `steps`: not a number");
    }
}
