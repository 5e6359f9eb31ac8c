//! When a program that is over its time counts as hung: by the processor time that it got, since on a busy machine
//! the clock alone says little.

use std::fs;
use std::time::Duration;

/// How many times its limit a program may take that gets little of the processor.
const MOST: u32 = 4;

/// Between two looks at a program that is over its time. One without any processor time in between does not go on.
const LOOK: Duration = Duration::from_secs(5);

/// What a process and its group are given.
pub struct Patience {
    group: u32,
    limit: Duration,
    /// When it is to be looked at next, counted from its start.
    due: Duration,
    /// The processor time at the last look.
    used: Option<Duration>,
}

impl Patience {
    /// For a process that leads a group of its own.
    pub fn new(group: u32, limit: Duration) -> Self {
        Self { group, limit, due: limit, used: None }
    }

    /// Leaves out a time in which it was stopped.
    pub fn leave_out(&mut self, time: Duration) {
        self.limit += time;
        self.due += time;
    }

    /// Whether the process hangs, so long after its start.
    pub fn is_over(&mut self, elapsed: Duration) -> bool {
        elapsed > self.due && self.judge(elapsed, processor_time(self.group))
    }

    /// Judges by the processor time used so far; where the system does not tell it, by the clock.
    fn judge(&mut self, elapsed: Duration, used: Option<Duration>) -> bool {
        let stands_still = used == self.used;
        self.used = used;
        self.due = elapsed + LOOK.min(self.limit);
        stands_still || elapsed > MOST * self.limit || used.is_none_or(|used| used >= self.limit)
    }
}

/// What all processes of a group have had of the processors, and the children that they waited for. Linux alone tells.
fn processor_time(group: u32) -> Option<Duration> {
    let of_process = |process: fs::DirEntry| {
        fs::read_to_string(process.path().join("stat")).ok().and_then(|stat| of_group(&stat, group))
    };
    let times = fs::read_dir("/proc").ok()?.flatten().filter_map(of_process);
    times.reduce(|sum, time| sum + time)
}

/// The processor time in `/proc/PID/stat` (proc(5)), if the process is of the group.
fn of_group(stat: &str, group: u32) -> Option<Duration> {
    /// Ticks a second, the same on every machine that Linux runs on today.
    const TICKS: u64 = 100;
    // The name before it may hold anything. Fields are numbered from 1, and the first one here is the third.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    if field(5)? != u64::from(group) {
        return None;
    }
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn what_gets_little_of_the_processor_has_more_time() {
        let mut patience = Patience::new(1, seconds(10));
        assert!(!patience.is_over(seconds(10)));
        for elapsed in 11..=40 {
            assert!(!patience.judge(seconds(elapsed), Some(seconds(elapsed) / 5)), "after {elapsed} s");
        }
        assert!(patience.judge(seconds(41), Some(seconds(9))));
    }

    #[test]
    fn what_had_its_time_or_stands_still_hangs() {
        assert!(Patience::new(1, seconds(10)).judge(seconds(11), Some(seconds(10))));
        let mut patience = Patience::new(1, seconds(10));
        assert!(!patience.judge(seconds(11), Some(seconds(2))));
        assert_eq!(patience.due, seconds(16));
        assert!(patience.judge(seconds(17), Some(seconds(2))));
    }

    #[test]
    fn without_the_processor_time_the_clock_judges() {
        assert!(Patience::new(1, seconds(10)).judge(seconds(11), None));
        let mut patience = Patience::new(1, seconds(10));
        patience.leave_out(seconds(5));
        assert!(!patience.is_over(seconds(14)));
    }

    #[test]
    fn processor_time_is_read_past_any_name() {
        let stat = "7 (a) b) (c) S 1 42 42 0 -1 4194560 9 8 7 6 150 50 20 5 20 0 1 0 99 1 1";
        assert_eq!(of_group(stat, 42), Some(Duration::from_millis(2250)));
        assert_eq!(of_group(stat, 1), None);
        assert_eq!(of_group("7 (cut off) S 1 42", 42), None);
    }
}
