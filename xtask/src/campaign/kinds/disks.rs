//! Disks that are full, that cannot be written to, and files that may not grow: one error line, nothing half-written,
//! and the same call succeeds once there is room.

use std::fs;
use std::sync::Once;

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::judge;
use crate::campaign::program::{Attempt, Ran, quoted};
use crate::campaign::world::RUNS;

/// What is done on the disk; `disk/` is where.
fn calls(case: &mut Case<'_>) -> Attempt {
    let run = &RUNS[case.random.below(RUNS.len())];
    match case.random.below(6) {
        0 => Attempt::new(["convert", "--model", "seeds/mlm", "--out", "disk/converted"]),
        1 => Attempt::new([
            "tokenizer",
            "train",
            "--model",
            "wordpiece",
            "--vocab-size",
            "200",
            "seeds/corpus.txt",
            "--out",
            "disk/t",
        ]),
        2 => Attempt::new(["predict", "--model", "model", "--output", "disk/out.jsonl"])
            .input("\"the law\"\n".repeat(1_500)),
        3 => Attempt::new(["eval", "--model", "model", "seeds/classification.toml", "--out", "disk/report"]),
        4 => Attempt::new(["embed", "--model", "seeds/mlm", "--format", "npy"])
            .input("the law\n".repeat(2_000))
            .environment("TMPDIR", "disk"),
        _ => run.attempt("disk/out"),
    }
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    case.bring("models/classification", "model")?;
    let attempt = calls(case);
    match case.random.below(4) {
        0 => file_limit(case, attempt),
        which => full(case, attempt, which == 1),
    }
}

/// A limit of files' sizes, which the system tells by a signal where a program does not take care.
fn file_limit(case: &mut Case<'_>, attempt: Attempt) -> Result<()> {
    fs::create_dir_all(case.path("disk"))?;
    let kilobytes = 1 + case.random.below(40) as u64;
    let ran = case.run(attempt.clone().file_kilobytes(kilobytes))?;
    if !ran.succeeded() {
        let ran = again(case, attempt)?;
        case.expect(ran.succeeded(), format!("no success with room: {}", ran.error().trim()));
    }
    Ok(())
}

/// The same call, or for a run that has made steps, the one that goes on.
fn again(case: &mut Case<'_>, attempt: Attempt) -> Result<Ran> {
    let resumes = attempt.args[0] == "train" && case.path("disk/out/metrics.jsonl").exists();
    case.run(if resumes { attempt.arg("--resume") } else { attempt })
}

/// A small file system in memory, in a name space of its own, where it goes with the processes.
fn full(case: &mut Case<'_>, attempt: Attempt, read_only: bool) -> Result<()> {
    let kilobytes = 4 * (1 + case.random.below(60));
    let options = if read_only { "ro".to_owned() } else { format!("size={kilobytes}k") };
    // The call in a shell's words, its standard streams in files beside the disk.
    let input = match &attempt.input {
        Some(bytes) => {
            case.write("input", bytes)?;
            "input"
        }
        None => "/dev/null",
    };
    let mut call = String::new();
    for (key, value) in &attempt.environment {
        call += &format!("{key}={} ", quoted(&value.to_string_lossy()));
    }
    call += &quoted(&case.program().to_string_lossy());
    for arg in &attempt.args {
        call += &format!(" {}", quoted(&arg.to_string_lossy()));
    }
    let resume =
        if attempt.args[0] == "train" { "[ -e disk/out/metrics.jsonl ] && more=--resume" } else { ":" };
    let script = format!(
        "mkdir disk && mount -t tmpfs -o {options} none disk || exit 77
         {call} < {input} > out-1 2> err-1; code=$?
         echo $code > code-1
         find disk -name '*.partial*' -o -name '.cloze-*' -o -name '.building-*' -o -name '.tmp*' > left-1
         mount -o remount,rw,size=64m none disk || exit 77
         {resume}
         {call} $more < {input} > out-2 2> err-2
         echo $? > code-2"
    );
    case.write("disk.sh", script)?;
    let user = if is_root() { "-m" } else { "-rm" };
    let ran = case.system("unshare", Attempt::new([user, "sh", "disk.sh"]).seconds(90))?;
    let failed_to_start = ran.error().contains("unshare") || ran.code == Some(77) || ran.code == Some(127);
    if failed_to_start {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            let why = ran.error();
            eprintln!(
                "    disks: skipped full and read-only ones, since nothing can be mounted here: {}",
                why.trim()
            );
        });
        return file_limit(case, attempt);
    }
    let number = |case: &Case<'_>, name: &str| -> Option<i32> {
        String::from_utf8_lossy(&case.read(name).ok()?).trim().parse().ok()
    };
    let code = number(case, "code-1");
    // A shell says 128 and the signal.
    let signal = code.filter(|code| *code > 128).map(|code| code - 128);
    let first = Ran {
        code: code.filter(|code| *code <= 128),
        signal: signal.or(ran.signal),
        timed_out: ran.timed_out,
        err: case.read("err-1").unwrap_or_default(),
        time: ran.time,
        ..Ran::default()
    };
    case.faults.extend(judge::faults(&first));
    if ran.timed_out || ran.signal.is_some() {
        return Ok(());
    }
    let left = String::from_utf8_lossy(&case.read("left-1").unwrap_or_default()).into_owned();
    case.expect(
        left.is_empty(),
        format!("left behind on a full disk: `{}`", left.lines().next().unwrap_or_default()),
    );
    if first.succeeded() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&case.read("err-2").unwrap_or_default()).into_owned();
    let second = number(case, "code-2");
    case.expect(
        second == Some(0),
        format!("no success with room ({second:?}): {}", error.trim_end().lines().last().unwrap_or_default()),
    );
    Ok(())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}
