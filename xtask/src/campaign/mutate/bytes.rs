//! Damage to bytes that mean nothing to us.

use super::until_different;
use crate::campaign::random::Random;

/// Other bytes than `seed`: with bits flipped, spans cut, doubled, moved, zeroed, lengths made huge.
pub fn bytes(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let longer = [seed, b"\0"].concat();
    until_different(&seed.to_vec(), longer, || {
        let mut bytes = seed.to_vec();
        // Mostly one thing is wrong, so that what comes after is reached.
        for _ in 0..1 + random.below(3) * random.below(2) {
            damage(random, &mut bytes);
        }
        bytes
    })
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    let len = bytes.len();
    let at = random.below(len);
    // Short spans more often than long ones.
    let most = 1 << random.below(12);
    let span = 1 + random.below(most);
    let end = (at + span).min(len);
    match random.below(12) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'.', b'{', b'\n']);
            }
        }
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let span = bytes[at..end].to_vec();
            bytes.splice(at..at, span);
        }
        6 => bytes[at..end].fill(*random.pick(&[0, 0xff])),
        7 => {
            let to = random.below(len);
            let span = bytes[at..end].to_vec();
            let to_end = (to + span.len()).min(len);
            bytes.splice(to..to_end, span);
        }
        8 => {
            let noise: Vec<u8> = (0..span.min(64)).map(|_| random.next() as u8).collect();
            bytes.splice(at..at, noise);
        }
        // What may be a length, little endian, of four or eight bytes.
        9 | 10 => {
            let value = *random.pick(&[
                0,
                1,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                1 << 40,
                i64::MAX as u64,
                u64::MAX,
            ]);
            let width = *random.pick(&[2, 4, 8]);
            let end = (at + width).min(len);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        _ => {
            let half = bytes[..at].to_vec();
            bytes.extend(half);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_different_and_always_the_same_way() {
        for seed in [&b""[..], b"a", b"\0\0\0\0\0\0\0\0", &[7; 300]] {
            for index in 0..500 {
                let mutate = || bytes(&mut Random::of(3, "bytes", index), seed);
                assert_ne!(mutate(), seed);
                assert_eq!(mutate(), mutate());
            }
        }
    }
}
