//! A list of the pieces that may be generated.

use crate::{Result, TrainerError};
use cloze_tokenizer::Tokenizer;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest line, in bytes; no piece is longer.
const LONGEST: u64 = 1 << 16;

/// Reads the ids of pieces, one per line; empty lines are skipped.
///
/// # Errors
/// An unreadable file; [`TrainerError::Candidate`] for a line that is no piece; [`TrainerError::NoCandidates`].
pub(crate) fn read_candidates(path: &Path, tokenizer: &Tokenizer) -> Result<Vec<i32>> {
    let io = |source| TrainerError::Io { action: "read", path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let (mut ids, mut line) = (BTreeSet::new(), Vec::new());
    for number in 1.. {
        line.clear();
        if file.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(io)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let piece = text.trim_end_matches(['\n', '\r']);
        if piece.is_empty() {
            continue;
        }
        let Some(id) = tokenizer.token_to_id(piece) else {
            let piece = piece.chars().take(40).collect();
            return Err(TrainerError::Candidate { path: path.into(), line: number, piece });
        };
        ids.insert(id as i32);
    }
    match ids.is_empty() {
        true => Err(TrainerError::NoCandidates { path: path.into() }),
        false => Ok(ids.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::Vocab;

    #[test]
    fn a_line_is_a_piece() {
        let vocab = Vocab::from_tokens(["[UNK]", "a", "sea", "##s"]).unwrap();
        let tokenizer = Tokenizer::bert(vocab, true).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &[u8]| {
            std::fs::write(file.path(), text).unwrap();
            read_candidates(file.path(), &tokenizer)
        };
        assert_eq!(read(b"sea\r\n\n##s\nsea\na").unwrap(), [1, 2, 3]);
        let message = |text: &[u8]| {
            let message = read(text).unwrap_err().to_string();
            message.strip_prefix(&file.path().display().to_string()).unwrap().to_owned()
        };
        let expected = ", line 2: \"whale\" is not a piece of the model's vocabulary; expected one piece per line, as \
                        `cloze tokenizer inspect` shows them";
        assert_eq!(message(b"sea\nwhale\n"), expected);
        assert!(message(b"\xff\n").starts_with(", line 1: "));
        assert!(message(&vec![b'a'; 1 << 20]).starts_with(", line 1: "));
        assert_eq!(message(b"\n"), ": no pieces; expected one per line");
        let missing = read_candidates(Path::new("no/such/file"), &tokenizer).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read no/such/file");
    }
}
