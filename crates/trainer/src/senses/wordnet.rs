//! WordNet's database: the files `index.noun`, `data.noun` etc., as described in WordNet's manual page wndb(5).

use crate::{Result, TrainerError};
use cloze_evaluation::senses::PartOfSpeech;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A synset's identity: its part of speech and its offset in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SynsetId {
    /// Its part of speech.
    pub pos: PartOfSpeech,
    /// The byte offset in the data file.
    pub offset: u32,
}

/// The meaning of a pointer from one synset to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointer {
    /// The target is more general, `@`; or the class of an instance, `@i`.
    Hypernym,
    /// The target is more specific, `~`; or an instance, `~i`.
    Hyponym,
    /// The target is an adjective of similar meaning, `&`.
    Similar,
}

/// The data read for a synset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synset {
    /// The number of its lexicographer file, such as that of `noun.animal`.
    pub lexicographer_file: u8,
    /// Pointers to others.
    pub pointers: Vec<(Pointer, SynsetId)>,
}

/// WordNet's words and synsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordNet {
    folder: PathBuf,
    words: [HashMap<String, Vec<SynsetId>>; 4],
    synsets: HashMap<SynsetId, Synset>,
}

impl WordNet {
    /// Reads a folder with WordNet's database files, or with a subfolder `dict` that has them.
    ///
    /// # Errors
    /// [`TrainerError::Io`] for files that cannot be read; [`TrainerError::BadWordNet`] with file and line.
    pub fn load(folder: &Path) -> Result<Self> {
        let inner = folder.join("dict");
        let folder = if inner.join("index.noun").is_file() { inner } else { folder.to_owned() };
        let mut synsets = HashMap::new();
        let mut words: [HashMap<String, Vec<SynsetId>>; 4] = Default::default();
        for pos in PartOfSpeech::ALL {
            let data = folder.join(format!("data.{}", ending(pos)));
            for (number, (id, synset)) in lines(&data, |fields| synset(pos, fields))? {
                if synsets.insert(id, synset).is_some() {
                    return Err(bad(&data, number, format!("duplicate synset {:08}", id.offset)));
                }
            }
            let index = folder.join(format!("index.{}", ending(pos)));
            for (number, (lemma, ids)) in lines(&index, |fields| word(pos, fields))? {
                if let Some(missing) = ids.iter().find(|id| !synsets.contains_key(id)) {
                    let reason = format!("the synset {:08} is not in {}", missing.offset, data.display());
                    return Err(bad(&index, number, reason));
                }
                words[pos as usize].insert(lemma, ids);
            }
        }
        Ok(Self { folder, words, synsets })
    }

    /// The folder with the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The synsets of a lemma (lower case, underscores for spaces), the first sense first. Empty if unknown.
    pub fn senses(&self, lemma: &str, pos: PartOfSpeech) -> &[SynsetId] {
        self.words[pos as usize].get(lemma).map_or(&[], Vec::as_slice)
    }

    /// A synset.
    pub fn synset(&self, id: SynsetId) -> Option<&Synset> {
        self.synsets.get(&id)
    }

    /// The targets of the pointers of a kind.
    pub fn related(&self, id: SynsetId, pointer: Pointer) -> impl Iterator<Item = SynsetId> {
        let pointers = self.synset(id).map_or(&[][..], |synset| synset.pointers.as_slice());
        pointers.iter().filter(move |(kind, _)| *kind == pointer).map(|(_, to)| *to)
    }
}

/// The extension of the files of a part of speech.
fn ending(pos: PartOfSpeech) -> &'static str {
    match pos {
        PartOfSpeech::Noun => "noun",
        PartOfSpeech::Verb => "verb",
        PartOfSpeech::Adjective => "adj",
        PartOfSpeech::Adverb => "adv",
    }
}

fn bad(path: &Path, line: usize, reason: String) -> TrainerError {
    TrainerError::BadWordNet { path: path.to_owned(), line: Some(line), reason }
}

/// The results of `parse` for the fields of each line, with the line's number from 1. Skips the licence, whose
/// lines begin with a space, and the gloss of each line.
fn lines<T>(
    path: &Path,
    parse: impl Fn(&mut Fields<'_>) -> std::result::Result<T, String>,
) -> Result<Vec<(usize, T)>> {
    let bytes = fs::read(path).map_err(TrainerError::io("read", path))?;
    // Some versions have glosses in Latin-1.
    let text = String::from_utf8_lossy(&bytes);
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with(' ') || line.trim().is_empty() {
            continue;
        }
        let fields = line.split('|').next().unwrap_or_default().split_ascii_whitespace();
        let parsed = parse(&mut Fields(Box::new(fields))).map_err(|reason| bad(path, number, reason))?;
        found.push((number, parsed));
    }
    match found.is_empty() {
        true => Err(TrainerError::BadWordNet {
            path: path.to_owned(),
            line: None,
            reason: "it has no entries; expected a file of WordNet's database".into(),
        }),
        false => Ok(found),
    }
}

/// The remaining fields of a line.
struct Fields<'a>(Box<dyn Iterator<Item = &'a str> + 'a>);

impl<'a> Fields<'a> {
    fn text(&mut self, what: &str) -> std::result::Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("the line ends where {what} is expected"))
    }

    fn number(&mut self, what: &str, radix: u32) -> std::result::Result<u32, String> {
        let text = self.text(what)?;
        u32::from_str_radix(text, radix).map_err(|_| format!("{text:?} is not {what}"))
    }

    fn offset(&mut self) -> std::result::Result<u32, String> {
        let text = self.text("a synset's offset")?;
        let offset = text.parse().ok().filter(|_| text.len() == 8);
        offset.ok_or_else(|| format!("{text:?} is not a synset's offset; expected eight digits"))
    }

    fn pos(&mut self) -> std::result::Result<PartOfSpeech, String> {
        let text = self.text("a part of speech")?;
        text.parse().map_err(|_| format!("{text:?} is not a part of speech; expected n, v, a, s or r"))
    }
}

/// `synset_offset lex_filenum ss_type w_cnt word lex_id [word lex_id...] p_cnt [ptr...]`; a pointer is `symbol offset pos
/// source/target`.
fn synset(pos: PartOfSpeech, fields: &mut Fields<'_>) -> std::result::Result<(SynsetId, Synset), String> {
    let offset = fields.offset()?;
    let file = fields.number("a lexicographer file's number", 10)?;
    let lexicographer_file =
        u8::try_from(file).map_err(|_| format!("{file} is not a lexicographer file's number"))?;
    let found = fields.pos()?;
    if found != pos {
        return Err(format!("its type is {found}; expected {pos}"));
    }
    for _ in 0..fields.number("the number of words, in hexadecimal digits", 16)? {
        fields.text("a word")?;
        fields.text("a word's lex_id")?;
    }
    let mut pointers = Vec::new();
    for _ in 0..fields.number("the number of pointers", 10)? {
        let symbol = fields.text("a pointer")?;
        let (offset, pos) = (fields.offset()?, fields.pos()?);
        fields.text("a pointer's source and target")?;
        let pointer = match symbol {
            "@" | "@i" => Pointer::Hypernym,
            "~" | "~i" => Pointer::Hyponym,
            "&" => Pointer::Similar,
            _ => continue,
        };
        pointers.push((pointer, SynsetId { pos, offset }));
    }
    Ok((SynsetId { pos, offset }, Synset { lexicographer_file, pointers }))
}

/// `lemma pos synset_cnt p_cnt [symbol...] sense_cnt tagsense_cnt synset_offset...`
fn word(pos: PartOfSpeech, fields: &mut Fields<'_>) -> std::result::Result<(String, Vec<SynsetId>), String> {
    let lemma = fields.text("a lemma")?.to_lowercase();
    let found = fields.pos()?;
    if found != pos {
        return Err(format!("its part of speech is {found}; expected {pos}"));
    }
    let n_synsets = fields.number("the number of synsets", 10)?;
    for _ in 0..fields.number("the number of pointers", 10)? {
        fields.text("a pointer")?;
    }
    fields.number("the number of senses", 10)?;
    fields.number("the number of tagged senses", 10)?;
    let ids = (0..n_synsets).map(|_| fields.offset().map(|offset| SynsetId { pos, offset }));
    Ok((lemma, ids.collect::<std::result::Result<_, _>>()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use PartOfSpeech::{Adjective, Noun};

    /// A small database with invented lines.
    pub(in crate::senses) fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/senses/wordnet")
    }

    #[test]
    fn words_and_synsets_are_read() {
        let wordnet = WordNet::load(&fixture().join("dict")).unwrap();
        assert_eq!(WordNet::load(&fixture()).unwrap(), wordnet);
        let noun = |offset| SynsetId { pos: Noun, offset };
        assert_eq!(wordnet.senses("bank", Noun), [noun(300), noun(400)]);
        assert_eq!(wordnet.senses("river_bank", Noun), [noun(400)]);
        assert!(wordnet.senses("absent", Noun).is_empty() && wordnet.senses("bank", Adjective).is_empty());
        assert_eq!(wordnet.synset(noun(300)).unwrap().lexicographer_file, 14);
        let related = |id, pointer| wordnet.related(id, pointer).collect::<Vec<_>>();
        assert_eq!(related(noun(300), Pointer::Hypernym), [noun(100)]);
        assert_eq!(related(noun(100), Pointer::Hyponym), [noun(300), noun(500)]);
        assert_eq!(related(noun(200), Pointer::Hyponym), [noun(400), noun(600)]);
        let adjective = |offset| SynsetId { pos: Adjective, offset };
        assert_eq!(related(adjective(100), Pointer::Similar), [adjective(200)]);
        assert!(related(noun(999), Pointer::Similar).is_empty());
    }

    #[test]
    fn damaged_lines_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, from: &str, to: &str| {
            for entry in fs::read_dir(fixture().join("dict")).unwrap() {
                let path = entry.unwrap().path();
                fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
            }
            let path = folder.path().join(name);
            let text = fs::read_to_string(&path).unwrap();
            let damaged = text.replacen(from, to, 1);
            assert_ne!(text, damaged, "{from}");
            fs::write(path, damaged).unwrap();
        };
        for (name, from, to, line, expected) in [
            (
                "data.noun",
                "00000300 14",
                "300 14",
                5,
                "\"300\" is not a synset's offset; expected eight digits",
            ),
            ("data.noun", "00000300 14", "00000300 x", 5, "\"x\" is not a lexicographer file's number"),
            ("data.noun", "00000300 14", "00000300 999", 5, "999 is not a lexicographer file's number"),
            ("data.noun", "00000300 14 n", "00000300 14 v", 5, "its type is v; expected n"),
            ("data.noun", "00000300 14 n 01", "00000300 14 n ff", 5, "the line ends where a word"),
            ("data.noun", "00000300 14 n", "00000100 14 n", 5, "duplicate synset 00000100"),
            ("index.noun", "bank n 2", "bank n 3", 3, "the line ends where a synset's offset is expected"),
            (
                "index.noun",
                "bank n 2",
                "bank x 2",
                3,
                "\"x\" is not a part of speech; expected n, v, a, s or r",
            ),
            ("index.noun", "00000300 00000400", "00000300 00000999", 3, "the synset 00000999 is not in "),
        ] {
            write(name, from, to);
            let message = WordNet::load(folder.path()).unwrap_err().to_string();
            assert!(message.contains(&format!("{name}:{line}: {expected}")), "{message}");
        }
    }

    #[test]
    fn a_file_without_entries_or_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = || WordNet::load(folder.path()).unwrap_err().to_string();
        assert!(message().starts_with("cannot read ") && message().ends_with("data.noun"), "{}", message());
        fs::write(folder.path().join("data.noun"), "  1 a licence alone\n").unwrap();
        assert!(message().ends_with("data.noun: it has no entries; expected a file of WordNet's database"));
        // Bytes of anything.
        let noise: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(folder.path().join("data.noun"), noise).unwrap();
        assert!(message().contains("data.noun:"), "{}", message());
    }
}
