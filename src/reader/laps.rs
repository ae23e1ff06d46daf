//! What one thread spends on which stage of reading: the time since the last look at the clock belongs to what was done.
//!
//! A run or gather costs three or four looks at the clock, whatever its number of records.

use std::time::{Duration, Instant};

use super::profile::Stage;

/// Working time after which a thread tells the profile.
const DUE: Duration = Duration::from_millis(1);

/// Time by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent([Duration; Stage::ALL.len()]);

impl Spent {
    /// Adds to a stage.
    pub fn add(&mut self, stage: Stage, time: Duration) {
        if let Some(slot) = self.0.get_mut(stage as usize) {
            *slot += time;
        }
    }

    /// Time of a stage.
    pub fn get(&self, stage: Stage) -> Duration {
        self.0.get(stage as usize).copied().unwrap_or_default()
    }

    /// Time of all stages that are work.
    pub fn busy(&self) -> Duration {
        let all: Duration = self.0.iter().sum();
        all.saturating_sub(self.get(Stage::Room))
    }
}

/// A clock that is read when something is done.
#[derive(Debug)]
pub struct Laps {
    last: Instant,
    spent: Spent,
}

impl Default for Laps {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            spent: Spent::default(),
        }
    }
}

impl Laps {
    /// Forgets the time since the clock was last read; returns when that is.
    pub fn start(&mut self) -> Instant {
        self.last = Instant::now();
        self.last
    }

    /// When the clock was last read.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// The time since the clock was last read belongs to `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let time = self.read();
        self.spent.add(stage, time);
    }

    /// Adds time that was read to the stages in the proportions of `shares`, or if there are none to [`Stage::Copy`].
    pub fn add_by(&mut self, time: Duration, shares: &Spent) {
        let total = shares.busy().as_secs_f64();
        if total > 0.0 {
            for (stage, _) in Stage::ALL {
                let share = shares.get(stage).as_secs_f64() / total;
                self.spent.add(stage, time.mul_f64(share));
            }
        } else {
            self.spent.add(Stage::Copy, time);
        }
    }

    /// Whether so much has come together that the profile should know.
    pub fn is_due(&self) -> bool {
        self.spent.busy() >= DUE
    }

    /// What was spent since it was last taken.
    pub fn take(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// The time since the clock was last read.
    pub fn read(&mut self) -> Duration {
        let now = Instant::now();
        let time = now.saturating_duration_since(self.last);
        self.last = now;
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_follow_each_other_without_a_gap() {
        let mut laps = Laps::default();
        let began = laps.start();
        laps.lap(Stage::Room);
        laps.lap(Stage::Plan);
        let mut shares = Spent::default();
        shares.add(Stage::Verify, Duration::from_secs(1));
        shares.add(Stage::Decode, Duration::from_secs(3));
        let split = laps.read();
        laps.add_by(split, &shares);
        let rest = laps.read();
        laps.add_by(rest, &Spent::default());
        let whole = laps.last().duration_since(began);
        let spent = laps.take();
        let near = |a: Duration, b: Duration| a.abs_diff(b) <= Duration::from_nanos(2);
        assert!(near(spent.get(Stage::Verify), split / 4), "{spent:?}");
        assert!(near(spent.get(Stage::Decode), split * 3 / 4), "{spent:?}");
        assert_eq!(spent.get(Stage::Copy), rest);
        assert!(
            near(spent.busy() + spent.get(Stage::Room), whole),
            "{spent:?}"
        );
        assert_eq!(laps.take(), Spent::default());
    }
}
