//! What counts as a failure of the program, whatever it was given.

use super::program::{Ran, Signal};

/// The longest `error:` line, in bytes.
const LONGEST: usize = 4_000;

/// Words of the parsers and of the language, which tell a user nothing.
const JARGON: [&str; 5] = [
    "variant identifier",
    "untagged enum",
    "called `Option::unwrap()`",
    "called `Result::unwrap()`",
    "stack backtrace",
];

/// Everything that is wrong with how a call ended.
pub fn faults(ran: &Ran) -> Vec<String> {
    let mut faults = Vec::new();
    let text = ran.error();
    if let Some(panic) = text.lines().find(|line| line.contains("panicked at")) {
        let message = text.lines().skip_while(|line| *line != panic).nth(1).unwrap_or_default();
        faults.push(format!("panic: {}: {message}", panic.trim()));
    } else if ran.code == Some(101) {
        faults.push("panic: exit status 101".into());
    }
    if ran.timed_out {
        faults.push(format!("hang: still running after {:.0} s", ran.time.as_secs_f64()));
    }
    let ours = ran.timed_out || ran.ended.is_some();
    if let (Some(signal), false) = (ran.signal, ours) {
        let telling = |line: &&str| line.contains("memory allocation") || line.contains("overflow");
        let lines = || text.lines().filter(|line| !line.trim().is_empty());
        let said = lines().find(telling).or(lines().next_back()).unwrap_or_default().replace('`', "'");
        faults.push(format!("death by signal {signal}: `{said}`"));
    }
    match (ran.code, faults.is_empty()) {
        (Some(1 | 2), true) if ran.err_is_cut => {}
        (Some(1 | 2), true) => faults.extend(of_error(&ran.err)),
        // The second Ctrl-C's status, which nobody else has.
        (Some(130), true) if ran.ended == Some(Signal::Interrupt) => {}
        (Some(code), true) if code != 0 => faults.push(format!("exit status {code}")),
        _ => {}
    }
    if ran.code == Some(0) && text.lines().any(|line| line.starts_with("error:")) {
        faults.push("exit status 0 with an error line".into());
    }
    faults.extend(control(&ran.err).map(|byte| format!("control byte {byte:#04x} on standard error")));
    faults
}

/// What is wrong with how a failure is told: it is one line that begins with `error: `, and after it comes
/// nothing but the usage that wrong arguments get.
fn of_error(err: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(err) else {
        return vec!["standard error is not UTF-8".into()];
    };
    let lines: Vec<&str> = text.lines().collect();
    let errors: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with("error:")).collect();
    let [at] = errors[..] else {
        return vec![format!("{} error lines, expected one", errors.len())];
    };
    let mut faults = Vec::new();
    let (line, after) = (lines[at], &lines[at + 1..]);
    if line.trim_end() == "error:" {
        faults.push("an empty error line".into());
    }
    if line.len() > LONGEST {
        faults.push(format!("an error line of more than {LONGEST} bytes"));
    }
    let usage = text.contains("\nFor more information, try '--help'.") || text.contains("\nUsage: ");
    if !usage && after.iter().any(|line| !line.trim().is_empty()) {
        faults.push("the error takes more than one line".into());
    }
    if is_bare(line) {
        faults.push(format!("not said what was tried, a path and the system's words alone: `{line}`"));
    }
    if let Some(word) = JARGON.iter().find(|word| line.contains(**word)) {
        faults.push(format!("a parser's words: {word}"));
    }
    faults
}

/// Whether a line is a path and what the system said about it.
fn is_bare(line: &str) -> bool {
    let parts = line.strip_prefix("error: ").and_then(|rest| rest.split_once(": "));
    parts.is_some_and(|(path, said)| {
        let words = said.split_once(" (os error ").map(|(words, rest)| (words, rest.contains(": ")));
        let is_path = !path.contains(' ') && path.contains(['/', '.']);
        is_path && words.is_some_and(|(words, more)| !words.contains(": ") && !more)
    })
}

/// The first byte that does things to a terminal.
fn control(err: &[u8]) -> Option<u8> {
    err.iter().copied().find(|byte| (*byte < 0x20 && !b"\n\r\t".contains(byte)) || *byte == 0x7f)
}

/// What a fault is apart from its numbers and names, to count equal ones together.
pub fn signature(fault: &str) -> String {
    let mut signature = String::new();
    let mut quote = None;
    for c in fault.chars().take(300) {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => continue,
            (None, '`' | '"') => quote = Some(c),
            _ => {}
        }
        match c.is_ascii_digit() {
            true if signature.ends_with('#') => {}
            true => signature.push('#'),
            false => signature.push(c),
        }
    }
    signature
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn exited(code: i32, err: &str) -> Ran {
        Ran { code: Some(code), err: err.into(), ..Ran::default() }
    }

    #[track_caller]
    fn assert_fault(ran: Ran, part: &str) {
        let faults = faults(&ran);
        assert!(faults.iter().any(|fault| fault.contains(part)), "{part:?} in {faults:?}");
    }

    #[test]
    fn one_error_line_after_notes_is_as_it_should_be() {
        for ran in [
            exited(0, ""),
            exited(0, "2 of 4 lines are longer than 20 tokens\n"),
            exited(1, "error: a.txt, line 3: not UTF-8\n"),
            exited(2, "training the tokenizer\nwarning: x\nerror: `train.steps` is -1; expected 1 or more\n"),
            exited(
                2,
                "error: unexpected argument '--x'\n\nUsage: cloze\n\nFor more information, try '--help'.\n",
            ),
        ] {
            assert_eq!(faults(&ran), Vec::<String>::new(), "{ran:?}");
        }
    }

    #[test]
    fn each_way_to_fail_badly_is_told() {
        let panic = "thread 'main' panicked at src/x.rs:7:5:\nindex out of bounds\nnote: run with\n";
        assert_fault(
            exited(101, panic),
            "panic: thread 'main' panicked at src/x.rs:7:5:: index out of bounds",
        );
        // A panic of a thread that the program survives is one all the same.
        assert_fault(exited(0, panic), "panic");
        assert_fault(exited(101, ""), "panic: exit status 101");
        assert_fault(exited(1, ""), "0 error lines");
        assert_fault(exited(1, "error: a\nerror: b\n"), "2 error lines");
        assert_fault(exited(1, "error: a\nCaused by:\n  b\n"), "more than one line");
        assert_fault(exited(1, "error: \n"), "empty error line");
        assert_fault(exited(1, &format!("error: {}\n", "x".repeat(5_000))), "more than 4000 bytes");
        assert_fault(exited(1, "error: \x1b[31mred\n"), "control byte 0x1b");
        assert_fault(exited(0, "note \0\n"), "control byte 0x00");
        assert_fault(exited(2, "error: expected variant identifier at line 1\n"), "a parser's words");
        assert_fault(
            exited(1, "error: m/config.json: Is a directory (os error 21)\n"),
            "not said what was tried",
        );
        assert_eq!(
            faults(&exited(1, "error: cannot read m/x: Is a directory (os error 21)\n")),
            Vec::<String>::new()
        );
        assert_fault(exited(134, ""), "exit status 134");
        assert_fault(exited(0, "error: but done\n"), "exit status 0 with an error line");
        assert_fault(Ran { err: b"error: \xff\n".into(), code: Some(1), ..Ran::default() }, "not UTF-8");
        assert_fault(
            Ran { signal: Some(6), ..exited(1, "memory allocation failed\n") },
            "death by signal 6: `memory",
        );
    }

    #[test]
    fn what_we_end_is_no_death_and_what_goes_on_is_a_hang() {
        let ended = |signal, number| Ran { ended: Some(signal), signal: Some(number), ..Ran::default() };
        assert_eq!(faults(&ended(Signal::Kill, 9)), Vec::<String>::new());
        assert_eq!(faults(&ended(Signal::Terminate, 15)), Vec::<String>::new());
        let late = Ran { timed_out: true, signal: Some(9), time: Duration::from_secs(30), ..Ran::default() };
        assert_eq!(faults(&late), ["hang: still running after 30 s"]);
    }

    #[test]
    fn equal_faults_have_one_signature() {
        assert_eq!(signature("line 12: `a` is 7"), signature("line 3: `bcd` is 2048"));
        assert_ne!(signature("panic: x"), signature("hang: x"));
    }
}
