//! Strings that make trouble, the same ones for the same seed on every machine.

/// SplitMix64 (Steele et al. 2014), so that a seed means the same strings forever.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn scalar(&mut self, first: u32, last: u32) -> char {
        // Surrogates are no scalar values.
        char::from_u32(first + self.below((last - first + 1) as usize) as u32).unwrap_or('\u{fffd}')
    }
}

/// Blocks in which characters decompose, combine, change their length with their case, or are cut in
/// ways of their own.
#[rustfmt::skip]
const BLOCKS: [(u32, u32); 48] = [
    (0x21, 0x7e), (0x80, 0xff), (0x100, 0x24f), (0x250, 0x2ff), (0x370, 0x3ff), (0x400, 0x52f),
    (0x531, 0x58f), (0x5d0, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f), (0x980, 0x9ff), (0xb80, 0xbff),
    (0xe00, 0xe7f), (0xf00, 0xfff), (0x1000, 0x109f), (0x10a0, 0x10ff), (0x1100, 0x11ff), (0x13a0, 0x13ff),
    (0x1780, 0x17ff), (0x1c80, 0x1cbf), (0x1d00, 0x1dbf), (0x1e00, 0x1eff), (0x1f00, 0x1fff),
    (0x2000, 0x206f), (0x2070, 0x20cf), (0x2100, 0x218f), (0x2190, 0x23ff), (0x2460, 0x24ff),
    (0x2500, 0x27bf), (0x2c00, 0x2cff), (0x2e80, 0x303f), (0x3040, 0x30ff), (0x3130, 0x33ff),
    (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xa640, 0xa7ff), (0xab30, 0xabbf), (0xac00, 0xd7fb),
    (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe20, 0xffef), (0x10400, 0x104ff), (0x11000, 0x110ff),
    (0x1d100, 0x1d1ff), (0x1d400, 0x1d7ff), (0x1f000, 0x1faff), (0x20000, 0x2a6df), (0x2f800, 0x2fa1f),
];

#[rustfmt::skip]
const MARKS: [(u32, u32); 10] = [
    (0x300, 0x36f), (0x483, 0x489), (0x591, 0x5c7), (0x610, 0x61a), (0x64b, 0x65f), (0x93a, 0x94d),
    (0x1ab0, 0x1aff), (0x20d0, 0x20f0), (0x3099, 0x309a), (0x1d165, 0x1d172),
];

const SPACES: [&str; 24] = [
    " ", " ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u{b}", "\u{c}", "\u{85}", "\u{a0}",
    "\u{1680}", "\u{2003}", "\u{200a}", "\u{2028}", "\u{2029}", "\u{202f}", "\u{205f}", "\u{3000}", " \n ",
];

const HIDDEN: [&str; 24] = [
    "\0",
    "\u{1}",
    "\u{8}",
    "\u{1b}",
    "\u{1f}",
    "\u{7f}",
    "\u{80}",
    "\u{9f}",
    "\u{ad}",
    "\u{61c}",
    "\u{180e}",
    "\u{200b}",
    "\u{200c}",
    "\u{200d}",
    "\u{200e}",
    "\u{202e}",
    "\u{2060}",
    "\u{2066}",
    "\u{feff}",
    "\u{fffd}",
    "\u{fffe}",
    "\u{e000}",
    "\u{e0041}",
    "\u{10ffff}",
];

const EMOJI: [&str; 16] =
    ["🙂", "👩‍👩‍👧‍👦", "❤️", "❤", "🏳️‍🌈", "🇩🇪", "🇩", "👍🏽", "1️⃣", "#⃣", "🧑🏿‍💻", "☺︎", "🕵🏼‍♀️", "™", "🀄", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"];

const WORDS: [&str; 40] = [
    "the",
    "The",
    "THE",
    "of",
    "and",
    "sailor",
    "unaffable",
    "Government",
    "transformers",
    "running",
    "I'm",
    "don't",
    "they're",
    "we've",
    "it'll",
    "'s",
    "'S",
    "''re",
    "n't",
    "e.g.",
    "U.S.A.",
    "3.14",
    "x86_64",
    "http://a.b/c?d=e#f",
    "naïve",
    "Ångström",
    "İstanbul",
    "straße",
    "ΣΊΣΥΦΟΣ",
    "Привет",
    "ﬁnance",
    "①②",
    "中文字",
    "東京タワー",
    "안녕하세요",
    "สวัสดี",
    "नमस्ते",
    "مرحبا",
    "שָׁלוֹם",
    "Việt",
];

/// What stages, decoders and the makers of vocabularies treat in a way of their own.
const MARKUP: [&str; 24] = [
    "##",
    "##s",
    "##ing",
    "[",
    "]",
    "[UNK",
    "[mask]",
    "<",
    ">",
    "</w>",
    "<0x0A>",
    "<unk",
    "▁",
    "▁the",
    "Ġ",
    "Ġthe",
    "Ċ",
    " .",
    " ,",
    " n't",
    " do not",
    " '",
    "' ",
    "\u{2581}\u{2581}",
];

/// The next string; `added` are the contents of added tokens.
pub fn text(random: &mut Random, added: &[&str]) -> String {
    let mut text = String::new();
    match random.below(64) {
        0 => return text,
        1 => {
            let count = 1 + random.below(8);
            (0..count).for_each(|_| text.push_str(random.pick(&SPACES)));
            return text;
        }
        2 => {
            long_word(random, &mut text);
            if random.one_in(2) {
                return text;
            }
        }
        _ => {}
    }
    // Some texts are of one kind of piece, most of all kinds.
    let only = random.one_in(4).then(|| random.below(KINDS));
    let count = 1 + random.below(14);
    for _ in 0..count {
        let kind = only.unwrap_or_else(|| random.below(KINDS));
        piece(kind, random, added, &mut text);
        if random.one_in(3) {
            text.push_str(random.pick(&SPACES));
        }
    }
    text
}

const KINDS: usize = 14;

fn piece(kind: usize, random: &mut Random, added: &[&str], text: &mut String) {
    let count = 1 + random.below(6);
    match kind {
        0..=2 => text.push_str(random.pick(&WORDS)),
        3 => (0..2 * count).for_each(|_| text.push(random.scalar(0x61, 0x7a))),
        4 => (0..count).for_each(|_| text.push(random.scalar(0x30, 0x39))),
        5 => (0..count).for_each(|_| text.push(random.scalar(0x20, 0x7e))),
        6 => {
            let (first, last) = random.pick(&BLOCKS);
            (0..count).for_each(|_| text.push(random.scalar(first, last)));
        }
        7 => {
            let (first, last) = random.pick(&BLOCKS);
            text.push(random.scalar(first, last));
            for _ in 0..count {
                let (first, last) = random.pick(&MARKS);
                text.push(random.scalar(first, last));
            }
        }
        8 => {
            let plane = random.below(17) as u32;
            (0..count).for_each(|_| text.push(random.scalar(plane << 16, plane << 16 | 0xffff)));
        }
        9 => text.push_str(random.pick(&EMOJI)),
        10 => text.push_str(random.pick(&HIDDEN)),
        11 => text.push_str(random.pick(&MARKUP)),
        12 => text.push_str(random.pick(&SPACES)),
        _ if added.is_empty() => text.push_str(random.pick(&WORDS)),
        // Whole, in the wrong case, or cut short; often within a word.
        _ => {
            let token = random.pick(added);
            match random.below(6) {
                0 => text.push_str(&token.to_lowercase()),
                1 => text.extend(token.chars().take(1 + random.below(4))),
                2 => {
                    text.push_str(random.pick(&WORDS));
                    text.push_str(token);
                    text.push_str(random.pick(&WORDS));
                }
                _ => text.push_str(token),
            }
        }
    }
}

/// Up to some thousand characters without a space.
fn long_word(random: &mut Random, text: &mut String) {
    let most = if random.one_in(8) { 4000 } else { 60 };
    let count = 90 + random.below(most);
    let unit = match random.below(4) {
        0 => random.pick(&EMOJI),
        1 => random.pick(&WORDS),
        2 => random.pick(&["a", "é", "e\u{301}", "中", "ab", "1", "."]),
        _ => "",
    };
    while text.chars().count() < count {
        match unit {
            "" => (0..32).for_each(|_| text.push(random.scalar(0x61, 0x7a))),
            unit => text.push_str(&unit.repeat(1 + count / 16)),
        }
    }
}
