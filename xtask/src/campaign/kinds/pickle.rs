//! `pytorch_model.bin`: archives and the programs in them, of which none may run.

use std::fs;

use anyhow::{Context, Result};

use crate::campaign::case::Case;
use crate::campaign::formats::zip;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::random::Random;
use crate::step;

/// Opcodes, some with their arguments, that build much, call, import or refer.
const OPCODES: [&[u8]; 26] = [
    b"(",
    b")",
    b"]",
    b"}",
    b"\x85",
    b"\x86",
    b"\x87",
    b"t",
    b"l",
    b"d",
    b"R",
    b"b",
    b"s",
    b"u",
    b"0",
    b"2",
    b"Q",
    b"cposix\nsystem\n",
    b"cbuiltins\neval\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"h\x00",
    b"q\x00",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"J\xff\xff\xff\x7f",
    b"X\xff\xff\xff\x7fabc",
    b"\x94\x93",
];

fn program(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut pickle = seed.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(pickle.len().saturating_sub(2)) + 2;
        let count = *random.pick(&[1, 1, 2, 1_000, 200_000]);
        let opcode = random.pick(&OPCODES).repeat(count);
        pickle.splice(at..at, opcode);
    }
    match random.one_in(3) {
        true => mutate::bytes(random, &pickle),
        false => pickle,
    }
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let names =
        ["zip", "legacy", "protocol4", "zipped_again", "evil", "evil_legacy", "module", "tensor", "double"];
    let name = *case.random.pick(&names);
    let path = step::root().join(format!("crates/model/tests/data/torch/{name}/pytorch_model.bin"));
    let seed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut members = zip::members(&seed);
    let pickle = members.iter().position(|(name, _)| name.ends_with("data.pkl"));
    let damaged = match (pickle, case.random.below(8)) {
        (_, 0) => mutate::bytes(&mut case.random, &seed),
        // A dictionary of no tensors.
        (Some(at), 1) => {
            members[at].1 = b"\x80\x02}q\x00.".to_vec();
            zip::archive(&members)
        }
        (Some(at), 2 | 3) => {
            let pickle = mutate::bytes(&mut case.random, &members[at].1);
            members[at].1 = pickle;
            zip::archive(&members)
        }
        (Some(_), 4) => {
            let which = case.random.below(members.len());
            match case.random.below(4) {
                0 => drop(members.remove(which)),
                1 => members.push(members[which].clone()),
                2 => {
                    members[which].0 = case
                        .random
                        .pick(&["../../escaped", "/tmp/escaped", "", "a/byteorder", "a/data/0"])
                        .to_string()
                }
                _ => members[which].1 = mutate::bytes(&mut case.random, &members[which].1),
            }
            zip::archive(&members)
        }
        (Some(at), _) => {
            let pickle = program(&mut case.random, &members[at].1);
            members[at].1 = pickle;
            zip::archive(&members)
        }
        (None, _) => program(&mut case.random, &seed),
    };
    case.bring("models/mlm", "model")?;
    fs::remove_file(case.path("model/model.safetensors"))?;
    case.write("model/pytorch_model.bin", &damaged)?;
    let attempt = match case.random.below(3) {
        0 => Attempt::new(["embed", "--model", "model"]).input("the law\n"),
        _ => Attempt::new(["convert", "--model", "model", "--out", "out"]),
    };
    // As much as the weights are said to take at most, and the program itself.
    let ran = case.run(attempt.megabytes(500).seconds(20))?;
    if ran.succeeded() {
        let error = ran.error();
        case.expect(!error.starts_with("0 tensors"), "exit status 0 for a file without a tensor");
    }
    Ok(())
}
