//! Two ranks in network namespaces of one machine, whose link has a limited bandwidth, beside DDP over the same link.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::super::measure::{self, Measured, Rounds, median};
use super::super::report;
use super::{Training, distributed, launcher, n_parameters, tokens_per_second, weights};

/// The namespaces, their ends of the link, and their addresses.
const ENDS: [[&str; 3]; 2] = [["cloze-a", "cloze-va", "10.77.0.1"], ["cloze-b", "cloze-vb", "10.77.0.2"]];

/// Links: a name, the arguments of the token bucket filter, and whether one packet in a hundred is lost.
const LINKS: [(&str, &[&str], bool); 4] = [
    ("10 Gbit/s", &["rate", "10gbit", "burst", "10mb", "latency", "50ms"], false),
    ("1 Gbit/s", &["rate", "1gbit", "burst", "1mb", "latency", "50ms"], false),
    ("1 Gbit/s, 1 % lost", &["rate", "1gbit", "burst", "1mb", "latency", "50ms"], true),
    ("100 Mbit/s", &["rate", "100mbit", "burst", "256kb", "latency", "50ms"], false),
];

/// Steps of two runs: the second one's further bytes are those of its further steps.
const SHORT_AND_LONG: [u64; 2] = [8, 24];

const SETS: [&str; 4] = ["schedule.warmup_steps=4", "eval.every=1000", "eval.max_examples=8", "log.every=4"];

/// A link between two namespaces, taken down at the end.
struct Link;

impl Link {
    fn new() -> Result<Self> {
        let link = Self;
        let [[a, va, address_a], [b, vb, address_b]] = ENDS;
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {va} netns {a} type veth peer name {vb} netns {b}"),
        ] {
            ip(&line)?;
        }
        for [namespace, end, address] in [[a, va, address_a], [b, vb, address_b]] {
            ip(&format!("-n {namespace} addr add {address}/24 dev {end}"))?;
            ip(&format!("-n {namespace} link set {end} up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        Ok(link)
    }

    /// Limits the bandwidth, both ways.
    fn limit(&self, filter: &[&str]) -> Result<()> {
        for [namespace, end, _] in ENDS {
            let mut tc = within(namespace, "tc");
            tc.args(["qdisc", "replace", "dev", end, "root", "tbf"]).args(filter);
            measure::output(&mut tc)?;
        }
        Ok(())
    }

    /// Loses one packet in a hundred, both ways, or none.
    fn lose(&self, loses: bool) -> Result<()> {
        for [namespace, ..] in ENDS {
            let mut flush = within(namespace, "iptables");
            measure::output(flush.args(["-F", "INPUT"]))?;
            if loses {
                let mut lose = within(namespace, "iptables");
                lose.args(["-A", "INPUT", "-m", "statistic", "--mode", "random", "--probability", "0.01"]);
                measure::output(lose.args(["-j", "DROP"]))?;
            }
        }
        Ok(())
    }

    /// Bytes sent by the first end so far.
    fn sent(&self) -> Result<f64> {
        let [[namespace, end, _], _] = ENDS;
        let mut cat = within(namespace, "cat");
        let text = measure::output(cat.arg(format!("/sys/class/net/{end}/statistics/tx_bytes")))?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for [namespace, ..] in ENDS {
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

fn ip(arguments: &str) -> Result<()> {
    measure::output(Command::new("ip").args(arguments.split(' '))).map(drop)
}

fn within(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

pub fn run(args: &Rounds, program: &Path, place: &Path) -> Result<()> {
    let python = measure::python();
    let link = match Link::new() {
        Ok(link) => link,
        Err(error) => {
            println!("networks are left out: no network namespace can be made ({error})");
            return Ok(());
        }
    };
    // What Open MPI starts a daemon on another machine with: here, in another namespace.
    let agent = place.join("agent");
    fs::write(&agent, "#!/bin/sh\nshift\nexec ip netns exec cloze-b sh -c \"$*\"\n")?;
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
    let alone = place.join("alone");
    let expected = |steps: u64| -> Result<Vec<u8>> {
        let steps = format!("train.steps={steps}");
        let sets: Vec<&str> = SETS.into_iter().chain([&*steps, "train.shards=2"]).collect();
        let mut command = Command::new(program);
        Training { config: "bert-mini-corpus", sets: &sets, out: &alone }
            .run(command.env("RAYON_NUM_THREADS", "1"))?;
        weights(&alone)
    };
    let expected = expected(SHORT_AND_LONG[1])?;
    let parameters = n_parameters(&expected)?;
    let mut rows = Vec::new();
    for (name, filter, loses) in LINKS {
        if args.only.as_ref().is_some_and(|only| !name.contains(&**only)) {
            continue;
        }
        link.limit(filter)?;
        match link.lose(loses) {
            Err(error) if loses => {
                println!("{name} is left out: {error}");
                continue;
            }
            _ => {}
        }
        for (exchange, set) in [("f32", &[][..]), ("bf16", &["ranks.exchange=bf16"])] {
            let (mut ours, mut theirs, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..args.rounds {
                eprintln!("{name}, {exchange}, round {}", round + 1);
                let out = place.join("networks");
                let mut sent = [0.0; 2];
                for (steps, sent) in SHORT_AND_LONG.into_iter().zip(&mut sent) {
                    let steps = format!("train.steps={steps}");
                    let sets: Vec<&str> = SETS
                        .iter()
                        .copied()
                        .chain([&*steps, "train.shards=2"])
                        .chain(set.iter().copied())
                        .collect();
                    let before = link.sent()?;
                    Training { config: "bert-mini-corpus", sets: &sets, out: &out }
                        .run(&mut ranks(program, &agent))?;
                    *sent = link.sent()? - before;
                }
                if exchange == "f32" {
                    ensure!(weights(&out)? == expected, "{name}: the weights are not those of one process");
                }
                bytes.push((sent[1] - sent[0]) / (SHORT_AND_LONG[1] - SHORT_AND_LONG[0]) as f64);
                ours.push(tokens_per_second(&out)?);
                if let Some(python) = python.as_ref().filter(|_| exchange == "f32") {
                    theirs.push(peer(python)?);
                }
            }
            let [ours, bytes] = [ours, bytes].map(|all| median(all.into_iter()).unwrap_or(f64::NAN));
            let theirs = median(theirs.into_iter());
            rows.push([
                format!("{name}, {exchange}"),
                report::short(ours),
                theirs.map_or("–".into(), report::short),
                theirs.map_or("–".into(), |theirs| format!("{:.2} ×", ours / theirs)),
                format!("{:.1} MB", bytes / 1e6),
                format!("{:.3} ×", bytes / (4 * parameters) as f64),
            ]);
        }
    }
    drop(link);
    let header = ["link", "tokens/s", "DDP, gloo", "ratio", "sent in a step", "of a ring's"];
    let text = format!(
        "{}\n\nBERT-mini, 64 × 128, two ranks of one thread in two network namespaces of one machine (`tc … tbf`, `iptables … statistic`). Bytes are the link's, with \
         the headers of TCP; a ring all-reduce of two ranks sends 4 bytes for each of the {parameters} parameters. With FP32 the weights \
         are compared with one process's in each round, and are equal. Medians of {} alternating rounds. {}.",
        report::table(header, rows),
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("ranks-networks", &text) } else { Ok(()) }
}

/// The launcher in the first namespace, of a rank in each.
fn ranks(program: &Path, agent: &Path) -> Command {
    let [[namespace, _, first], [_, _, second]] = ENDS;
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace, "mpirun", "-n", "2", "--host"])
        .arg(format!("{first}:1,{second}:1"));
    command.args(["--mca", "plm_rsh_agent"]).arg(agent);
    command.args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.77.0.0/24"]);
    command.args([
        "--mca",
        "oob_tcp_if_include",
        "10.77.0.0/24",
        "--bind-to",
        "none",
        "-x",
        "RAYON_NUM_THREADS",
    ]);
    command.envs(launcher(2).get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg(program).env("RAYON_NUM_THREADS", "1");
    command
}

/// Tokens a second of the peer, a process in each namespace.
fn peer(python: &OsString) -> Result<f64> {
    let run = |place: usize| {
        let [namespace, end, _] = ENDS[place];
        let rank = place.to_string();
        let nodes = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", &rank];
        let meeting = ["--master-addr", ENDS[0][2], "--master-port", "29511"];
        let inner = distributed(python, &[&nodes[..], &meeting].concat(), ["mini", "f32"], "64");
        let mut command = within(namespace, "env");
        command.arg(format!("GLOO_SOCKET_IFNAME={end}")).arg("OMP_NUM_THREADS=1").arg(inner.get_program());
        command.args(inner.get_args()).current_dir(crate::step::root());
        command
    };
    let mut second =
        run(1).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot start the peer")?;
    let first = Measured::from(&mut run(0));
    let _ = second.wait();
    Ok(first?.per_s)
}
