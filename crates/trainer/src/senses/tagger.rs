//! Choosing senses.

use super::related::{Origin, RelatedVectors};
use super::vectors::SenseVectors;
use super::wordnet::{SynsetId, WordNet};
use crate::{Result, TrainerError};
use cloze_evaluation::embeddings::Similarity;
use cloze_evaluation::senses::PartOfSpeech;
use std::borrow::Cow;

/// The fraction of a part of speech's labelled senses that WordNet must have to count as the same version.
const SAME_VERSION: f64 = 0.95;

/// Chooses among the senses of a lemma.
#[derive(Debug)]
pub struct SenseTagger<'a> {
    vectors: &'a SenseVectors,
    wordnet: Option<Known<'a>>,
    prior: f64,
}

/// WordNet, as far as it matches the labelled senses.
#[derive(Debug)]
struct Known<'a> {
    wordnet: &'a WordNet,
    related: RelatedVectors<'a>,
    /// The prefix of sense names before the offset: `wn30-`.
    prefix: String,
    is_used: [bool; 4],
}

/// How many labelled senses of a part of speech WordNet has for the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordNetFit {
    /// The part of speech.
    pub pos: PartOfSpeech,
    /// The labelled senses.
    pub senses: usize,
    /// Those found in WordNet.
    pub found: usize,
    /// Whether WordNet is used for this part of speech.
    pub is_used: bool,
}

/// A possible sense of a word.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The sense.
    pub sense: String,
    /// The cosine of its vector and the word's; none if either has no vector.
    pub similarity: Option<f64>,
    /// The source of its vector.
    pub origin: Option<Origin>,
    /// Its share of the word's labelled occurrences, with add-one smoothing over the candidates.
    pub share: f64,
}

impl Candidate {
    /// The deciding score `cosine + prior · ln share`; none without a cosine.
    pub fn score(&self, prior: f64) -> Option<f64> {
        self.similarity.map(|similarity| similarity + prior * self.share.ln())
    }
}

/// The chosen sense.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The sense.
    pub sense: String,
    /// The cosine of its vector and the word's, if chosen by that.
    pub similarity: Option<f64>,
    /// The method: `nearest` to the word, by its own vector; `nearest-synset`, `nearest-neighbours`,
    /// `nearest-hypernyms` or `nearest-lexicographer-file`, by a vector of related synsets; `most-frequent` in
    /// the labelled sentences; or `first` in WordNet.
    pub by: &'static str,
}

impl<'a> SenseTagger<'a> {
    /// A tagger with candidates and frequencies from the labelled sentences only.
    pub fn new(vectors: &'a SenseVectors) -> Self {
        Self { vectors, wordnet: None, prior: 0.0 }
    }

    /// A tagger that also uses WordNet, for lemmas and senses missing from the labelled sentences.
    ///
    /// Senses must be named like WordNet's synsets: any prefix, eight digits of the offset, and the part of
    /// speech, as in `wn30-09213565-n`. Offsets differ between versions of WordNet, and between distributions
    /// of one version, so each part of speech is used only if nearly all of its labelled senses are senses of
    /// the same words in WordNet.
    ///
    /// # Errors
    /// [`TrainerError::BadWordNet`] if no part of speech matches.
    pub fn with_wordnet(vectors: &'a SenseVectors, wordnet: &'a WordNet) -> Result<(Self, Vec<WordNetFit>)> {
        let named = vectors.inventory.iter().flat_map(|(_, _, senses)| senses);
        let prefix = named.filter_map(|sense| parts(&sense.sense)).map(|(prefix, _)| prefix).next();
        let prefix = prefix.unwrap_or_default().to_owned();
        let id = |sense: &str| synset_id(sense, &prefix);
        let mut fits = PartOfSpeech::ALL.map(|pos| WordNetFit { pos, senses: 0, found: 0, is_used: false });
        for (lemma, pos, senses) in vectors.inventory.iter() {
            let known = wordnet.senses(lemma, pos);
            let fit = &mut fits[pos as usize];
            fit.senses += senses.len();
            fit.found +=
                senses.iter().filter(|sense| id(&sense.sense).is_some_and(|id| known.contains(&id))).count();
        }
        for fit in &mut fits {
            fit.is_used = fit.senses > 0 && fit.found as f64 >= SAME_VERSION * fit.senses as f64;
        }
        if !fits.iter().any(|fit| fit.is_used) {
            let (found, all) =
                fits.iter().fold((0, 0), |(found, all), fit| (found + fit.found, all + fit.senses));
            let example = vectors.inventory.iter().flat_map(|(_, _, senses)| senses).next();
            let example = example.map_or("none", |sense| sense.sense.as_str());
            let reason = format!(
                "its synsets are not those of the labelled senses: it has {found} of {all}, which are named as {example}; \
                 expected the labels' version of WordNet, such as 3.0 for wn30-…"
            );
            return Err(TrainerError::BadWordNet { path: wordnet.folder().to_owned(), line: None, reason });
        }
        let is_used = fits.map(|fit| fit.is_used);
        let related =
            RelatedVectors::new(wordnet, vectors, |sense| id(sense).filter(|id| is_used[id.pos as usize]));
        let wordnet = Some(Known { wordnet, related, prefix, is_used });
        Ok((Self { vectors, wordnet, prior: 0.0 }, fits.into()))
    }

    /// Favours frequent senses: [`choose`](Self::choose) maximises `cosine + weight · ln share`.
    ///
    /// This is the most probable sense if each sense's vectors follow a von Mises–Fisher distribution around
    /// its own vector with the same concentration, `1 / weight`. With 0, the default, frequency is ignored.
    pub fn with_prior(self, weight: f64) -> Self {
        Self { prior: weight, ..self }
    }

    /// The weight of sense frequencies.
    pub fn prior(&self) -> f64 {
        self.prior
    }

    /// The sense vectors.
    pub fn vectors(&self) -> &'a SenseVectors {
        self.vectors
    }

    /// Whether it has WordNet.
    pub fn has_wordnet(&self) -> bool {
        self.wordnet.is_some()
    }

    /// The most frequent sense of a lemma in the labelled sentences, or its first sense in WordNet if the lemma
    /// is missing from them.
    pub fn most_frequent(&self, lemma: &str, pos: PartOfSpeech) -> Option<Choice> {
        let choice = |sense, by| Choice { sense, similarity: None, by };
        let counted = self.vectors.inventory.most_frequent(lemma, pos);
        counted.map(|sense| choice(sense.to_owned(), "most-frequent")).or_else(|| {
            let first = self.synsets(lemma, pos).first().copied()?;
            Some(choice(self.name(first)?, "first"))
        })
    }

    /// The possible senses of a word, those of the labelled sentences first by decreasing frequency. `vector`
    /// is the word's.
    ///
    /// With `related` and WordNet, senses that only WordNet has follow in WordNet's order, and senses without
    /// an occurrence use vectors of related synsets.
    pub fn candidates(
        &self,
        lemma: &str,
        pos: PartOfSpeech,
        vector: Option<&[f32]>,
        related: bool,
    ) -> Vec<Candidate> {
        let known = self.wordnet.as_ref().filter(|known| related && known.is_used[pos as usize]);
        let candidate = |sense: &str, count: u64, found: Option<(Cow<[f32]>, Origin)>| {
            let origin = found.as_ref().map(|(_, origin)| *origin);
            let similarity =
                vector.zip(found.as_ref()).and_then(|(vector, (found, _))| cosine(vector, found));
            Candidate { sense: sense.to_owned(), similarity, origin, share: (count + 1) as f64 }
        };
        let of_relatives = |id: SynsetId| {
            let found = known.and_then(|known| known.related.vector(id));
            found.map(|(vector, origin)| (Cow::Owned(vector), origin))
        };
        let counted = self.vectors.inventory.senses(lemma, pos);
        let mut all: Vec<Candidate> = counted
            .iter()
            .map(|sense| {
                let own = self.vectors.vector(sense.number).map(|own| (Cow::Borrowed(own), Origin::Own));
                let id = || known.and_then(|known| synset_id(&sense.sense, &known.prefix));
                candidate(&sense.sense, sense.count, own.or_else(|| id().and_then(of_relatives)))
            })
            .collect();
        for id in known.map_or(&[][..], |known| known.wordnet.senses(lemma, pos)) {
            let Some(name) = self.name(*id) else { continue };
            if !counted.iter().any(|sense| sense.sense == name) {
                all.push(candidate(&name, 0, of_relatives(*id)));
            }
        }
        let total: f64 = all.iter().map(|candidate| candidate.share).sum();
        all.iter_mut().for_each(|candidate| candidate.share /= total);
        all
    }

    /// The nearest of a word's candidates, with the [frequency weight](Self::with_prior); the first one on
    /// ties. If none has a similarity, the [most frequent sense](Self::most_frequent).
    pub fn choose(
        &self,
        lemma: &str,
        pos: PartOfSpeech,
        vector: Option<&[f32]>,
        related: bool,
    ) -> Option<Choice> {
        self.choose_with(self.prior, lemma, pos, vector, related)
    }

    /// [`choose`](Self::choose) with another frequency weight.
    pub(super) fn choose_with(
        &self,
        prior: f64,
        lemma: &str,
        pos: PartOfSpeech,
        vector: Option<&[f32]>,
        related: bool,
    ) -> Option<Choice> {
        let candidates = self.candidates(lemma, pos, vector, related);
        best(&candidates, prior).or_else(|| self.most_frequent(lemma, pos))
    }

    /// WordNet's senses of a lemma, if WordNet is used.
    fn synsets(&self, lemma: &str, pos: PartOfSpeech) -> &[SynsetId] {
        let known = self.wordnet.as_ref().filter(|known| known.is_used[pos as usize]);
        known.map_or(&[], |known| known.wordnet.senses(lemma, pos))
    }

    /// The name of a synset as in the labelled sentences.
    fn name(&self, id: SynsetId) -> Option<String> {
        let prefix = &self.wordnet.as_ref()?.prefix;
        Some(format!("{prefix}{:08}-{}", id.offset, id.pos))
    }
}

/// The candidate with the highest score, the first one on ties; none if none has a score.
fn best(candidates: &[Candidate], prior: f64) -> Option<Choice> {
    let mut best: Option<(&Candidate, f64, Origin)> = None;
    for candidate in candidates {
        let Some((score, origin)) = candidate.score(prior).zip(candidate.origin) else { continue };
        if best.is_none_or(|(_, found, _)| score > found) {
            best = Some((candidate, score, origin));
        }
    }
    let (candidate, _, origin) = best?;
    let by = match origin {
        Origin::Own => "nearest",
        Origin::Synset => "nearest-synset",
        Origin::Neighbours => "nearest-neighbours",
        Origin::Hypernyms => "nearest-hypernyms",
        Origin::LexicographerFile => "nearest-lexicographer-file",
    };
    Some(Choice { sense: candidate.sense.clone(), similarity: candidate.similarity, by })
}

/// The cosine of two vectors; none if one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let is_zero = |vector: &[f32]| vector.iter().all(|x| *x == 0.0);
    (!is_zero(a) && !is_zero(b)).then(|| Similarity::Cosine.of(a, b))
}

/// The prefix and synset of a sense named like a synset.
fn parts(sense: &str) -> Option<(&str, SynsetId)> {
    let (rest, pos) = sense.rsplit_once('-')?;
    let pos = pos.parse().ok()?;
    let (prefix, digits) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let is_offset = digits.bytes().all(|byte| byte.is_ascii_digit());
    let offset = digits.parse().ok().filter(|_| is_offset)?;
    Some((prefix, SynsetId { pos, offset }))
}

/// The synset of a sense named like a synset with this prefix.
fn synset_id(sense: &str, prefix: &str) -> Option<SynsetId> {
    parts(sense).filter(|(found, _)| *found == prefix).map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{SenseModel, SenseOrigin};
    use super::super::wordnet::tests::fixture;
    use super::*;
    use PartOfSpeech::{Adjective, Adverb, Noun, Verb};
    use cloze_evaluation::senses::SenseCounter;

    /// Vectors of two features for senses, each of which was seen so often.
    fn vectors(senses: &[(&str, PartOfSpeech, &str, u64, [f32; 2])]) -> SenseVectors {
        let mut counter = SenseCounter::default();
        senses.iter().for_each(|(lemma, pos, sense, n, _)| counter.add_many(lemma, *pos, sense, *n));
        let inventory = counter.finish();
        let mut values = vec![0.0; 2 * inventory.n_senses()];
        for (lemma, pos, sense, _, vector) in senses {
            let found = inventory.senses(lemma, *pos).iter().find(|known| known.sense == *sense).unwrap();
            values[2 * found.number..][..2].copy_from_slice(vector);
        }
        SenseVectors {
            model: SenseModel { name: "m".into(), hash: "00".into(), layers: "last".into(), width: 2 },
            origin: SenseOrigin { checksum: "x".into(), held_out: 0.0, sentences: 1, words: 1 },
            inventory,
            values,
        }
    }

    fn noun(offset: u32) -> String {
        format!("wn30-{offset:08}-n")
    }

    fn chosen(choice: Option<Choice>) -> Option<(String, &'static str)> {
        choice.map(|choice| (choice.sense, choice.by))
    }

    #[test]
    fn the_nearest_sense_of_the_lemma_is_chosen() {
        let vectors = vectors(&[
            ("bank", Noun, "money", 3, [1.0, 0.0]),
            ("bank", Noun, "river", 1, [0.0, 2.0]),
            ("bank", Noun, "tilt", 1, [0.0, 0.0]),
            ("bank", Verb, "tilt", 1, [-1.0, 0.0]),
            ("odd", Noun, "odd", 1, [0.0, 0.0]),
        ]);
        let tagger = SenseTagger::new(&vectors);
        let choose = |lemma, pos, vector: Option<&[f32]>| tagger.choose(lemma, pos, vector, true);
        let river = choose("bank", Noun, Some(&[3.0, 4.0])).unwrap();
        assert_eq!((river.sense.as_str(), river.by), ("river", "nearest"));
        assert!((river.similarity.unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(chosen(choose("bank", Noun, Some(&[4.0, 3.0]))), Some(("money".into(), "nearest")));
        // Of equals the more frequent one.
        assert_eq!(chosen(choose("bank", Noun, Some(&[1.0, 1.0]))), Some(("money".into(), "nearest")));
        assert_eq!(chosen(choose("bank", Verb, Some(&[1.0, 1.0]))), Some(("tilt".into(), "nearest")));
        // Without a vector of the word or of any sense, and without the lemma.
        for vector in [None, Some(&[0.0, 0.0][..])] {
            assert_eq!(chosen(choose("bank", Noun, vector)), Some(("money".into(), "most-frequent")));
        }
        assert_eq!(chosen(choose("odd", Noun, Some(&[1.0, 1.0]))), Some(("odd".into(), "most-frequent")));
        assert_eq!(choose("bank", Adverb, Some(&[1.0, 1.0])), None);
        let senses: Vec<(String, bool)> = tagger
            .candidates("bank", Noun, Some(&[1.0, 1.0]), true)
            .into_iter()
            .map(|candidate| (candidate.sense, candidate.similarity.is_some()))
            .collect();
        assert_eq!(senses, [("money".into(), true), ("river".into(), true), ("tilt".into(), false)]);
    }

    #[test]
    fn a_frequent_sense_may_be_further_away() {
        let vectors = vectors(&[
            ("bank", Noun, "money", 8, [1.0, 0.0]),
            ("bank", Noun, "river", 2, [0.0, 1.0]),
            ("bank", Noun, "tilt", 1, [0.0, 0.0]),
        ]);
        let chosen = |prior: f64, vector: [f32; 2]| {
            let tagger = SenseTagger::new(&vectors).with_prior(prior);
            tagger.choose("bank", Noun, Some(&vector), true).unwrap()
        };
        // Shares of 9, 3 and 2 of 14: a third of the occurrences costs 0.5 · ln 3 = 0.55 of the cosine.
        assert_eq!(chosen(0.0, [0.6, 0.8]).sense, "river");
        let money = chosen(0.5, [0.6, 0.8]);
        assert_eq!((money.sense.as_str(), money.by), ("money", "nearest"));
        assert!((money.similarity.unwrap() - 0.6).abs() < 1e-6, "the cosine alone: {money:?}");
        assert_eq!(chosen(0.5, [0.2, 0.98]).sense, "river");
        let candidates = SenseTagger::new(&vectors).candidates("bank", Noun, None, true);
        let shares: Vec<f64> = candidates.iter().map(|candidate| candidate.share).collect();
        assert_eq!(shares, [9.0 / 14.0, 3.0 / 14.0, 2.0 / 14.0]);
    }

    #[test]
    fn wordnet_gives_candidates_and_related_vectors() {
        let wordnet = WordNet::load(&fixture()).unwrap();
        let (fund, hill) = (noun(500), noun(600));
        let vectors = vectors(&[
            ("fund", Noun, &fund, 2, [1.0, 0.0]),
            ("hill", Noun, &hill, 1, [0.0, 1.0]),
            ("rapid", Adjective, "wn30-00000200-a", 1, [1.0, 1.0]),
        ]);
        let (tagger, fits) = SenseTagger::with_wordnet(&vectors, &wordnet).unwrap();
        let fit = |pos, senses, is_used| WordNetFit { pos, senses, found: senses, is_used };
        let expected =
            [fit(Noun, 2, true), fit(Verb, 0, false), fit(Adjective, 1, true), fit(Adverb, 0, false)];
        assert_eq!(fits, expected);

        // A bank's vectors are those of its sisters: of money a fund's, of a river a hill's.
        let river = tagger.choose("bank", Noun, Some(&[0.1, 0.9]), true);
        assert_eq!(chosen(river), Some((noun(400), "nearest-neighbours")));
        let money = tagger.choose("bank", Noun, Some(&[0.9, 0.1]), true);
        assert_eq!(chosen(money), Some((noun(300), "nearest-neighbours")));
        // Without relations it is WordNet's first sense.
        assert_eq!(chosen(tagger.choose("bank", Noun, Some(&[0.1, 0.9]), false)), Some((noun(300), "first")));
        // The institution has hyponyms, the crowd of people only a lexicographer file, that of birds nothing.
        let origins = |lemma: &str, pos| -> Vec<Option<Origin>> {
            let all = tagger.candidates(lemma, pos, Some(&[1.0, 0.0]), true);
            all.into_iter().map(|candidate| candidate.origin).collect()
        };
        assert_eq!(origins("institution", Noun), [Some(Origin::Neighbours)]);
        assert_eq!(origins("crowd", Noun), [Some(Origin::LexicographerFile), None]);
        assert_eq!(origins("swift", Adjective), [Some(Origin::Synset)]);
        assert_eq!(origins("quick", Adjective), [Some(Origin::Neighbours)]);
        assert_eq!(origins("fund", Noun), [Some(Origin::Own)]);
        assert_eq!(origins("run", Verb), []);
        assert_eq!(tagger.most_frequent("run", Verb), None);
    }

    #[test]
    fn hypernyms_follow_where_no_neighbour_has_a_vector() {
        let wordnet = WordNet::load(&fixture()).unwrap();
        let slope = noun(200);
        let vectors = vectors(&[("slope", Noun, &slope, 1, [1.0, 0.0])]);
        let (tagger, _) = SenseTagger::with_wordnet(&vectors, &wordnet).unwrap();
        let hill = tagger.choose("hill", Noun, Some(&[1.0, 0.0]), true);
        assert_eq!(chosen(hill), Some((noun(600), "nearest-hypernyms")));
    }

    #[test]
    fn another_version_of_wordnet_is_not_used() {
        let wordnet = WordNet::load(&fixture()).unwrap();
        let (fund, other) = (noun(500), noun(501));
        let good = ("fund", Noun, fund.as_str(), 1, [1.0, 0.0]);
        let run = ("run", Verb, "wn30-00000101-v", 1, [1.0, 0.0]);
        let half = vectors(&[good, run]);
        let (tagger, fits) = SenseTagger::with_wordnet(&half, &wordnet).unwrap();
        let used: Vec<bool> = fits.iter().map(|fit| fit.is_used).collect();
        assert_eq!(used, [true, false, false, false]);
        assert_eq!(tagger.candidates("run", Verb, None, true).len(), 1);

        for bad in [other.as_str(), "fund%1:14:00::", "wn30-0500-n", "é0000500-n"] {
            let none = vectors(&[("fund", Noun, bad, 1, [1.0, 0.0])]);
            let message = SenseTagger::with_wordnet(&none, &wordnet).unwrap_err().to_string();
            assert!(
                message.contains("it has 0 of 1, which are named as ") && message.contains(bad),
                "{message}"
            );
        }
    }

    #[test]
    fn senses_are_named_as_synsets() {
        let id = SynsetId { pos: Noun, offset: 9_213_565 };
        assert_eq!(parts("wn30-09213565-n"), Some(("wn30-", id)));
        assert_eq!(parts("09213565-n"), Some(("", id)));
        for other in
            ["", "-n", "9213565-n", "wn30-0921356x-n", "wn30-09213565-q", "wn30-09213565", "bank%1:17:01::"]
        {
            assert_eq!(parts(other), None, "{other}");
        }
        assert_eq!(synset_id("wn31-09213565-n", "wn30-"), None);
    }
}
