//! One case: a folder, the files that a kind puts there, the calls of the program, and what was wrong with them.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::judge;
use super::mutate;
use super::program::{self, Attempt, Ran};
use super::random::Random;
use super::world::World;

/// Standard input that a kept case keeps at most, in bytes: what is longer is made anew with the case.
const KEPT_INPUT: usize = 32 << 20;

/// What a writer leaves that was not stopped by us: none of it may lie in a case's folder.
const LEFTOVERS: [&str; 4] = [".partial", BUILDING, ".cloze-", ".tmp"];
const BUILDING: &str = ".building-";

/// A case under way.
pub struct Case<'a> {
    pub random: Random,
    /// The case's number in its kind.
    pub index: u64,
    pub world: &'a World,
    program: &'a Path,
    /// Holds `work`, the calls' working folder, and their standard streams.
    folder: PathBuf,
    /// The calls, as a shell has them.
    pub calls: Vec<String>,
    /// What was wrong.
    pub faults: Vec<String>,
    /// Whether a call was killed, which then could not clear up after itself.
    killed: bool,
    pub slowest: Duration,
    /// In MB.
    pub largest: u64,
    /// Ends the case before its first call: its folder then holds what the call would have found.
    pub prepare_only: bool,
}

/// What a case that is only prepared ends with.
#[derive(Debug)]
pub struct Prepared;

impl Display for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("prepared")
    }
}

impl std::error::Error for Prepared {}

impl<'a> Case<'a> {
    /// A case in `folder`, which is emptied first.
    pub fn new(world: &'a World, folder: PathBuf, random: Random, index: u64) -> Result<Self> {
        remove(&folder)?;
        fs::create_dir_all(folder.join("work"))?;
        Ok(Self {
            random,
            index,
            world,
            program: &world.program,
            folder,
            calls: Vec::new(),
            faults: Vec::new(),
            killed: false,
            slowest: Duration::ZERO,
            largest: 0,
            prepare_only: false,
        })
    }

    /// A path in the working folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join("work").join(name)
    }

    /// Writes a file into the working folder, and the folders that it lies in.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn read(&self, name: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = self.path(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Damages a file of the working folder, byte by byte.
    pub fn damage(&mut self, name: &str) -> Result<()> {
        let seed = self.read(name)?;
        let damaged = mutate::bytes(&mut self.random, &seed);
        self.write(name, damaged)
    }

    /// Copies a file or folder of the world into the working folder.
    pub fn bring(&self, from: &str, to: &str) -> Result<()> {
        copy(&self.world.path(from), &self.path(to))
    }

    /// Something is wrong that no exit status tells.
    pub fn fault(&mut self, what: impl Display) {
        self.faults.push(what.to_string());
    }

    /// Adds a fault unless `holds`.
    pub fn expect(&mut self, holds: bool, what: impl Display) {
        if !holds {
            self.fault(what);
        }
    }

    /// Adds a fault unless two folders hold the same, byte for byte.
    pub fn expect_same(&mut self, a: &Path, b: &Path, what: impl Display) {
        if let Some(difference) = difference(a, b) {
            self.fault(format!("{what}: {difference}"));
        }
    }

    /// Calls the program and judges how it ends.
    pub fn run(&mut self, attempt: Attempt) -> Result<Ran> {
        let ran = self.quietly(self.program, attempt)?;
        self.judged(&ran);
        Ok(ran)
    }

    /// Calls a program of the system, and leaves the judgement to the kind.
    pub fn system(&mut self, program: &str, attempt: Attempt) -> Result<Ran> {
        self.quietly(Path::new(program), attempt)
    }

    /// Calls the program, and leaves the judgement to the kind.
    pub fn unjudged(&mut self, attempt: Attempt) -> Result<Ran> {
        self.quietly(self.program, attempt)
    }

    /// The program that is attacked.
    pub fn program(&self) -> &'a Path {
        self.program
    }

    fn quietly(&mut self, program: &Path, attempt: Attempt) -> Result<Ran> {
        let streams = self.begin(program, &attempt)?;
        let ran = program::run(program, &self.path(""), &streams, &attempt)?;
        self.note(&ran);
        Ok(ran)
    }

    /// Two calls at the same time.
    pub fn both(&mut self, attempts: [Attempt; 2]) -> Result<[Ran; 2]> {
        let [first, second] = &attempts;
        let streams = [self.begin(self.program, first)?, self.begin(self.program, second)?];
        let (program, folder) = (self.program, self.path(""));
        let [first, second] = thread::scope(|scope| {
            let run = |i: usize| program::run(program, &folder, &streams[i], &attempts[i]);
            let other = scope.spawn(move || run(1));
            let first = run(0);
            [first, other.join().unwrap_or_else(|_| bail!("a thread of the campaign panicked"))]
        });
        let both = [first?, second?];
        for ran in &both {
            self.note(ran);
        }
        // Only now has none of them anything under way.
        for ran in &both {
            self.judged(ran);
        }
        Ok(both)
    }

    fn begin(&mut self, program: &Path, attempt: &Attempt) -> Result<PathBuf> {
        if self.prepare_only {
            return Err(Prepared.into());
        }
        let number = self.calls.len() + 1;
        let input = attempt.input.as_ref().map(|_| format!("../{number}.stdin"));
        self.calls.push(attempt.shown(program, input.as_deref()));
        Ok(self.folder.join(number.to_string()))
    }

    fn note(&mut self, ran: &Ran) {
        self.killed |= ran.signal.is_some();
        self.slowest = self.slowest.max(ran.time);
        self.largest = self.largest.max(ran.peak);
    }

    /// Adds what is wrong with how a call ended.
    pub fn judged(&mut self, ran: &Ran) {
        self.faults.extend(judge::faults(ran));
        let by_itself = ran.ended.is_none() && !ran.timed_out && ran.signal.is_none();
        // What a killed call has left is cleared by the one that goes on, not by one that is refused.
        if by_itself && (!self.killed || ran.succeeded()) {
            self.expect_no_leftovers();
        }
    }

    /// Nothing half-written may lie in the working folder.
    pub fn expect_no_leftovers(&mut self) {
        for path in files(&self.path("")) {
            let name = path.display().to_string();
            let Some(mark) = LEFTOVERS.iter().find(|mark| name.contains(**mark)) else { continue };
            // A killed build of a corpus may be another process's still: it goes a day later.
            if self.killed && *mark == BUILDING {
                continue;
            }
            return self.fault(format!("left behind: a {mark}, `{name}`"));
        }
    }

    /// Keeps the case as `place`: what its calls found in `work`, what they left in `left`, and how to call them.
    pub fn keep(&self, place: &Path, again: &str, prepare: impl FnOnce(PathBuf) -> Result<()>) -> Result<()> {
        remove(place)?;
        fs::create_dir_all(place.parent().unwrap_or(place))?;
        fs::rename(&self.folder, place)?;
        fs::rename(place.join("work"), place.join("left"))?;
        prepare(self.folder.clone())?;
        if self.folder.join("work").exists() {
            fs::rename(self.folder.join("work"), place.join("work"))?;
        }
        remove(&self.folder)?;
        for number in 1..=self.calls.len() {
            let input = place.join(format!("{number}.stdin"));
            if fs::metadata(&input).is_ok_and(|found| found.len() > KEPT_INPUT as u64) {
                fs::remove_file(input)?;
            }
        }
        fs::write(place.join("faults.txt"), self.faults.join("\n") + "\n")?;
        let script = format!(
            "#!/bin/sh\n# What was wrong:\n{}\n# The whole case, with what it compares: {again}\n\
             # Its calls, in a copy of what they found; what they left then is in left/.\n\
             cd \"$(dirname \"$0\")\" && rm -rf again && cp -r work again && cd again || exit 1\n{}\n",
            self.faults
                .iter()
                .map(|fault| format!("#   {}", printable(fault)))
                .collect::<Vec<_>>()
                .join("\n"),
            self.calls.join("\n"),
        );
        fs::write(place.join("command.sh"), script)?;
        Ok(())
    }
}

/// A text on one line without anything that a terminal acts on, and no longer than a few lines of it.
pub fn printable(text: &str) -> String {
    text.chars()
        .take(400)
        .flat_map(char::escape_debug)
        .collect::<String>()
        .replace("\\\"", "\"")
        .replace("\\'", "'")
}

/// Every file and folder below `folder`, relative to it, in order; links are not followed.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = left.pop() {
        for entry in fs::read_dir(folder.join(&below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Copies a file, or a folder with all that is in it; links stay links.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    let cannot = || format!("cannot copy {} to {}", from.display(), to.display());
    if !from.is_dir() {
        fs::copy(from, to).with_context(cannot)?;
        return Ok(());
    }
    fs::create_dir_all(to).with_context(cannot)?;
    for path in files(from) {
        let (source, target) = (from.join(&path), to.join(&path));
        let kind = fs::symlink_metadata(&source)?.file_type();
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target).with_context(cannot)?;
        }
    }
    Ok(())
}

/// Removes a folder or file, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// The first file in which two folders differ, byte for byte; `None` when they hold the same.
pub fn difference(a: &Path, b: &Path) -> Option<String> {
    let (of_a, of_b) = (files(a), files(b));
    if of_a != of_b {
        return Some(format!("{of_a:?} beside {of_b:?}"));
    }
    let differs = |path: &&PathBuf| {
        let [a, b] = [a, b].map(|folder| folder.join(path));
        a.is_file() && fs::read(a).ok() != fs::read(b).ok()
    };
    of_a.iter().find(differs).map(|path| format!("{} differs", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_compared_byte_for_byte() {
        let root = std::env::temp_dir().join(format!("cloze-campaign-same-{}", std::process::id()));
        let [a, b] = ["a", "b"].map(|name| root.join(name));
        fs::create_dir_all(a.join("in")).unwrap();
        fs::write(a.join("in/x"), "1").unwrap();
        copy(&a, &b).unwrap();
        assert_eq!(difference(&a, &b), None);
        fs::write(b.join("in/x"), "2").unwrap();
        assert_eq!(difference(&a, &b).unwrap(), "in/x differs");
        fs::write(b.join("more"), "").unwrap();
        assert!(difference(&a, &b).unwrap().contains("more"));
        remove(&root).unwrap();
        remove(&root).unwrap();
    }

    #[test]
    fn what_is_shown_of_a_fault_is_one_plain_line() {
        assert_eq!(printable("a \"b\"\n\x1b[31m"), "a \"b\"\\n\\u{1b}[31m");
    }
}
